"""Credentials that may read objects and not list the bucket: accepted when the user said so, and nothing else is."""

from collections.abc import Callable

import pytest

from s3mount.core.ranges import ByteRange
from s3mount.errors import AccessDenied, BadCredentials, BucketNotFound, ExpiredCredentials, StoreError
from s3mount.store.connect import connect
from s3mount.store.session import S3Config
from tests.store.conftest import CRT, config
from tests.store.credential_chain import CONTENT, WANTED, World, assume_role
from tests.support import credential_servers as servers
from tests.support.proxy import error_answer
from tests.support.scripted import Call, ScriptedBucket, is_from_crt, scripted


def make_bucket() -> ScriptedBucket:
    bucket = ScriptedBucket("bucket")
    bucket.objects["object"] = CONTENT
    return bucket


async def fail_to_connect(s3: S3Config) -> StoreError:
    with pytest.raises(StoreError) as caught:
        async with connect(s3, CRT):
            pass
    return caught.value


def refused_list(code: str, *, crt: bool | None = None) -> Callable[[Call], bytes]:
    """A bucket that refuses to list: to one of the clients, or to both."""

    def script(call: Call) -> bytes:
        is_refused = call.path.rstrip("/") == "/bucket" and crt in (None, is_from_crt(call))
        return error_answer(403, code) if is_refused else make_bucket()(call)

    return script


async def test_a_denied_listing_is_accepted_when_it_was_foretold(keys: None) -> None:
    """No first page then, and both clients serve what is known by its key; without the foretelling it is an error."""
    with scripted(refused_list("AccessDenied")) as server:
        error = await fail_to_connect(config("bucket", server.url))
        assert type(error) is AccessDenied
        async with connect(config("bucket", server.url, may_list=False), CRT) as connection:
            assert connection.root_page is None
            assert (await connection.catalogue.head("object")).id == WANTED
            await connection.reader.confirm(WANTED)
            assert await connection.reader.get_range(WANTED, ByteRange(0, 10)) == CONTENT


async def test_a_listing_that_is_permitted_after_all_is_used(keys: None) -> None:
    """The first page is kept as ever, even where only the CRT is denied."""
    for script in (make_bucket(), refused_list("AccessDenied", crt=True)):
        with scripted(script) as server:
            async with connect(config("bucket", server.url, may_list=False), CRT) as connection:
                assert [each.key for each in connection.root_page.objects] == ["object"]


@pytest.mark.parametrize("crt", [False, True], ids=["aiobotocore", "crt"])
async def test_no_other_refusal_passes_for_a_denied_listing(keys: None, *, crt: bool) -> None:
    """Credentials that are wrong, expired or for another bucket end the start, by either client's probe."""
    codes = {
        "InvalidAccessKeyId": BadCredentials,
        "SignatureDoesNotMatch": BadCredentials,
        "ExpiredToken": ExpiredCredentials,
        "NoSuchBucket": BucketNotFound,
    }
    for code, kind in codes.items():
        with scripted(refused_list(code, crt=crt)) as server:
            error = await fail_to_connect(config("bucket", server.url, may_list=False))
        assert type(error) is kind


async def test_a_role_that_is_denied_does_not_pass_for_a_denied_listing(world: World) -> None:
    """AccessDenied by STS, at the start or whenever the credentials are renewed then, is about the credentials."""
    assume_role(world)
    world.issuer.lifetime_s = 120.0  # botocore renews at every use
    healthy, allowed = servers.sts(world.issuer, caller="BASE"), 0
    denied = error_answer(403, "AccessDenied", "not authorized")
    world.env(AWS_ENDPOINT_URL_STS=world.serve(lambda c: healthy(c) if world.issuer.issued < allowed else denied))
    bucket = world.bucket
    world.server.script = lambda call: denied if call.path.rstrip("/") == "/bucket" else bucket(call)
    s3 = config("bucket", world.server.url, may_list=False)
    errors = []
    for renewals in range(10):
        allowed = world.issuer.issued + renewals
        world.server.reset()
        try:
            async with connect(s3, CRT) as connection:
                for before_signing in (0, 1):
                    allowed = world.issuer.issued + before_signing
                    with pytest.raises(AccessDenied) as caught:
                        await connection.catalogue.head("object")
                    assert caught.value.operation == "credentials"
                break
        except StoreError as error:
            errors.append((type(error), error.operation))
    assert errors == [(AccessDenied, "credentials")] * renewals
    assert [is_from_crt(call) for call in world.server.calls] == [False, True]
