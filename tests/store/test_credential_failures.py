"""Credential providers that fail: each an error of ours that says so, at the start and while mounted."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from s3mount.core.ranges import ByteRange
from s3mount.errors import AccessDenied, ExpiredCredentials, NoCredentials, StoreError
from s3mount.store.connect import connect
from tests.store.conftest import CRT
from tests.store.credential_chain import (
    HOUR,
    WANTED,
    Provider,
    World,
    assume_role,
    container,
    read_by_both,
    sso,
    web_identity,
    write_sso_token,
)
from tests.support import credential_servers as servers
from tests.support.scripted import Call, answer


async def test_no_credentials_at_all(world: World) -> None:
    """The chain ends with nothing: said at once, and no request is sent."""
    with pytest.raises(NoCredentials):
        async with connect(world.s3, CRT):
            pass
    assert world.server.calls == []


def refused_role(world: World) -> None:
    assume_role(world)
    world.env(AWS_ENDPOINT_URL_STS=world.serve(servers.sts(world.issuer, caller="ANOTHER")))


def missing_token_file(world: World) -> None:
    web_identity(world)
    world.env(AWS_WEB_IDENTITY_TOKEN_FILE=str(world.directory / "absent"))


def failing_process(world: World) -> None:
    world.configure("[default]\ncredential_process = false\n")


def absent_process(world: World) -> None:
    world.configure("[default]\ncredential_process = /nonexistent/program\n")


def babbling_process(world: World) -> None:
    world.configure("[default]\ncredential_process = echo hello\n")


def refusing_container(world: World) -> None:
    container(world)
    world.env(AWS_CONTAINER_AUTHORIZATION_TOKEN="Bearer other")


def babbling_container(world: World) -> None:
    container(world)
    world.env(AWS_CONTAINER_CREDENTIALS_FULL_URI=world.serve(lambda call: answer(200, b"{}")) + "/")


def unknown_profile(world: World) -> None:
    world.env(AWS_PROFILE="absent")


def half_a_key(world: World) -> None:
    world.env(AWS_ACCESS_KEY_ID="ONLY")


def garbled_config(world: World) -> None:
    world.configure("[default\nregion")


def ended_sso_session(world: World) -> None:
    sso(world)
    write_sso_token(world, lifetime_s=-HOUR)


def no_sso_session(world: World) -> None:
    sso(world)
    (world.directory / (hashlib.sha1(b"company").hexdigest() + ".json")).unlink()


def refused_sso_session(world: World) -> None:
    sso(world)
    world.env(AWS_ENDPOINT_URL_SSO=world.serve(servers.sso(world.issuer, "another")))


def stale_container(world: World) -> None:
    container(world)
    world.issuer.lifetime_s = -HOUR


FAILURES: list[tuple[Provider, type[StoreError]]] = [
    (refused_role, AccessDenied),
    (missing_token_file, NoCredentials),
    (failing_process, NoCredentials),
    (absent_process, NoCredentials),
    (babbling_process, NoCredentials),
    (refusing_container, NoCredentials),
    (babbling_container, NoCredentials),
    (unknown_profile, NoCredentials),
    (half_a_key, NoCredentials),
    (garbled_config, NoCredentials),
    (ended_sso_session, AccessDenied),
    (no_sso_session, NoCredentials),
    (refused_sso_session, ExpiredCredentials),
    (stale_container, ExpiredCredentials),
]


@pytest.mark.parametrize(("provider", "kind"), FAILURES)
async def test_a_provider_that_fails_is_an_error_of_ours(
    world: World, provider: Provider, kind: type[StoreError]
) -> None:
    """Whatever botocore raises for it, the mount says that the credentials are what is wrong."""
    provider(world)
    with pytest.raises(kind):
        async with connect(world.s3, CRT):
            pass
    assert world.server.calls == []


@pytest.mark.parametrize("failure", ["refused", "expired", "silent"])
async def test_a_renewal_that_fails_is_an_error_of_ours(world: World, failure: str) -> None:
    """Both clients say so at each request, and work again when the provider does."""
    world.issuer.lifetime_s = 120.0
    healthy = servers.container(world.issuer, "Bearer pod")
    is_broken = False

    def script(call: Call) -> bytes:
        if not is_broken:
            return healthy(call)
        if failure == "expired":
            world.issuer.lifetime_s = -HOUR
            return healthy(call)
        return answer(500) if failure == "refused" else answer(200, b"{}")

    world.env(
        AWS_CONTAINER_CREDENTIALS_FULL_URI=world.serve(script) + "/", AWS_CONTAINER_AUTHORIZATION_TOKEN="Bearer pod"
    )
    async with connect(world.s3, CRT) as connection:
        is_broken = True
        calls: list[Callable[[], Any]] = [
            lambda: connection.reader.get_range(WANTED, ByteRange(0, 10)),
            lambda: connection.catalogue.list_page(""),
        ]
        for call in calls:
            with pytest.raises((NoCredentials, ExpiredCredentials)):
                await call()
        is_broken = False
        world.issuer.lifetime_s = HOUR
        await read_by_both(connection)
    assert world.signers(crt=True)[-1] == world.signers(crt=False)[-1]
