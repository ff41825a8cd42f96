"""The credential chain, each provider emulated: both clients sign with what it gave, and with what it gives later."""

from dataclasses import replace

import pytest
import trio

from s3mount.core.ranges import ByteRange
from s3mount.errors import NoCredentials
from s3mount.store.connect import connect
from tests.store.conftest import CRT
from tests.store.credential_chain import (
    HOUR,
    PROVIDERS,
    RENEWING,
    WANTED,
    Provider,
    World,
    assume_role,
    container,
    credentials_file,
    environment,
    read_by_both,
)
from tests.support.credential_servers import token_of
from tests.support.scripted import is_from_crt, signature_of


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_both_clients_sign_with_what_the_provider_gave(world: World, provider: Provider) -> None:
    """Access key, secret and session token, asked for once."""
    provider(world)
    async with connect(world.s3, CRT) as connection:
        await read_by_both(connection)
    for crt in (True, False):
        assert set(world.signers(crt=crt)) == {("ISSUED1", token_of("ISSUED1"))}
        assert len(world.signers(crt=crt)) == 2
    assert world.issuer.issued == 1


@pytest.mark.parametrize("provider", RENEWING)
async def test_both_clients_go_over_to_renewed_credentials(world: World, provider: Provider) -> None:
    """Credentials that end soon are asked for again while the session lives; the old ones are not used again."""
    world.issuer.lifetime_s = 120.0
    provider(world)
    async with connect(world.s3, CRT) as connection:
        before = world.issuer.issued
        await read_by_both(connection)
        assert world.issuer.issued > before
        world.issuer.lifetime_s = HOUR
        await connection.reader.get_range(WANTED, ByteRange(0, 1))
        newest = world.issuer.newest
        world.server.reset()
        for _ in range(3):
            await read_by_both(connection)
        assert world.issuer.newest == newest
    for crt in (True, False):
        assert set(world.signers(crt=crt)) == {(newest, token_of(newest))}


async def test_fifty_readers_at_once_renew_once(world: World) -> None:
    """Nobody signs with a half-changed pair of key and secret, and the provider is not overrun."""
    world.issuer.lifetime_s = 120.0
    container(world)
    async with connect(world.s3, CRT) as connection:
        world.issuer.lifetime_s = HOUR
        before = world.issuer.issued
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(connection.reader.get_range, WANTED, ByteRange(0, 10))
        assert world.issuer.issued == before + 1


async def test_a_profile_given_as_an_option_wins_over_the_variable(world: World) -> None:
    """`--profile` is what the user typed."""
    credentials_file(world)
    world.env(AWS_PROFILE="default")
    async with connect(replace(world.s3, profile="training"), CRT) as connection:
        await read_by_both(connection)
    assert set(world.signers(crt=True)) == set(world.signers(crt=False)) == {("ISSUED1", token_of("ISSUED1"))}


async def test_only_a_region_option_is_enough_to_assume_a_role(world: World) -> None:
    """`--region` alone also tells STS its region."""
    assume_role(world)
    world.monkeypatch.delenv("AWS_REGION")
    async with connect(replace(world.s3, region="us-east-1"), CRT) as connection:
        await read_by_both(connection)


async def test_an_anonymous_mount_signs_nothing(world: World) -> None:
    """No Authorization header from either client, though there are credentials."""
    environment(world)
    world.bucket.secrets = None
    async with connect(replace(world.s3, is_anonymous=True), CRT) as connection:
        await read_by_both(connection)
    assert {is_from_crt(call) for call in world.server.calls} == {True, False}
    for call in world.server.calls:
        assert not {"authorization", "x-amz-security-token"} & call.headers.keys()


async def test_payer_and_owner_go_with_every_request_of_both_clients(world: World) -> None:
    """And they are signed."""
    environment(world)
    s3 = replace(world.s3, requester_pays=True, expected_bucket_owner="123456789012")
    async with connect(s3, CRT) as connection:
        await read_by_both(connection)
        await connection.catalogue.head("object")
    assert {is_from_crt(call) for call in world.server.calls} == {True, False}
    for call in world.server.calls:
        assert call.headers["x-amz-request-payer"] == "requester"
        assert call.headers["x-amz-expected-bucket-owner"] == "123456789012"
        signature = signature_of(call)
        assert signature is not None
        assert {"x-amz-request-payer", "x-amz-expected-bucket-owner"} <= set(signature.signed_headers.split(";"))


@pytest.mark.parametrize("anonymous", [True, False])
async def test_a_profile_that_is_not_there_is_said_even_without_signing(world: World, *, anonymous: bool) -> None:
    """The profile also gives the region and the CA bundle."""
    with pytest.raises(NoCredentials, match="absent"):
        async with connect(replace(world.s3, profile="absent", is_anonymous=anonymous), CRT):
            pass
