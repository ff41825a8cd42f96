"""Connecting to a bucket: region, trust and endpoint, told apart and told soon."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from s3mount.core.attrs import ObjectId
from s3mount.core.location import Location
from s3mount.core.ranges import ByteRange
from s3mount.errors import (
    AccessDenied,
    BadCredentials,
    BucketNotFound,
    ExpiredCredentials,
    NotS3,
    StoreError,
    StoreFailure,
    StoreThrottled,
    StoreUnreachable,
    UntrustedCertificate,
    WrongRegion,
)
from s3mount.store.connect import connect
from s3mount.store.session import S3Config
from tests.store.conftest import CRT, config
from tests.support.certificates import make_authority
from tests.support.processes import REGION, free_port
from tests.support.proxy import error_answer, proxy
from tests.support.scripted import (
    DROP,
    HANG,
    Call,
    Scripted,
    ScriptedBucket,
    answer,
    etag,
    is_from_crt,
    scripted,
    signature_of,
)
from tests.support.servers import Server

CONTENT = b"0123456789"
WANTED = ObjectId("object", etag(CONTENT))
#: What the issue allows for an endpoint or certificate that cannot be used.
PATIENCE_S = 15.0
#: As the command has it when AWS_MAX_ATTEMPTS is not set.
ATTEMPTS = 10

pytestmark = pytest.mark.usefixtures("keys")


def make_bucket(region: str = REGION, *, malformed: bool = False) -> ScriptedBucket:
    bucket = ScriptedBucket("bucket", region=region, malformed=malformed)
    bucket.objects["object"] = CONTENT
    return bucket


def regions_signed(server: Scripted, *, crt: bool) -> list[str]:
    """The region in each request's credential scope, in order."""
    found = [signature_of(call) for call in server.calls if is_from_crt(call) is crt]
    return [each.region for each in found if each is not None]


async def fail_to_connect(s3: S3Config) -> tuple[StoreError, float]:
    """The error, and the seconds it took."""
    began = trio.current_time()
    with pytest.raises(StoreError) as caught:
        async with connect(s3, CRT):
            pass
    return caught.value, trio.current_time() - began


# -- region -----------------------------------------------------------------------------------


@pytest.mark.parametrize("malformed", [False, True], ids=["301 with a header", "400 with a body"])
async def test_an_inferred_region_is_corrected(caplog: pytest.LogCaptureFixture, *, malformed: bool) -> None:
    """By the bucket's answer; both clients sign for the right one, and the log says so once."""
    caplog.set_level(logging.INFO, "s3mount.store.connect")
    with scripted(make_bucket("ap-southeast-2", malformed=malformed)) as server:
        async with connect(config("bucket", server.url, inferred_region="us-east-1"), CRT) as connection:
            assert connection.region == "ap-southeast-2"
            assert [each.key for each in connection.root_page.objects] == ["object"]
            server.reset()
            assert await connection.reader.get_range(WANTED, ByteRange(0, 10)) == CONTENT
            await connection.catalogue.list_page("")
        assert regions_signed(server, crt=True) == regions_signed(server, crt=False) == ["ap-southeast-2"]
    assert [record.getMessage() for record in caplog.records] == [
        "the bucket is in region ap-southeast-2, not us-east-1"
    ]


async def test_a_region_from_nowhere_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither option nor variable nor profile: the default is a guess."""
    monkeypatch.delenv("AWS_REGION")
    with scripted(make_bucket("sa-east-1")) as server:
        async with connect(config("bucket", server.url), CRT) as connection:
            assert connection.region == "sa-east-1"
        assert regions_signed(server, crt=True) == ["sa-east-1"]


async def test_a_right_region_costs_no_extra_request() -> None:
    """One LIST by each client, signed for the region that was given."""
    with scripted(make_bucket("eu-west-3")) as server:
        async with connect(config("bucket", server.url, region="eu-west-3"), CRT) as connection:
            assert connection.region == "eu-west-3"
        assert [is_from_crt(call) for call in server.calls] == [False, True]
        assert regions_signed(server, crt=True) == regions_signed(server, crt=False) == ["eu-west-3"]


@pytest.mark.parametrize("malformed", [False, True], ids=["301 with a header", "400 with a body"])
async def test_an_explicit_wrong_region_is_an_error_that_names_the_right_one(*, malformed: bool) -> None:
    """What the user typed is not corrected behind his back."""
    with scripted(make_bucket("eu-west-3", malformed=malformed)) as server:
        error, _ = await fail_to_connect(config("bucket", server.url, region="us-west-2"))
    assert isinstance(error, WrongRegion)
    assert error.region == "eu-west-3"
    assert "eu-west-3" in str(error)
    assert "us-west-2" in str(error)


async def test_a_redirect_that_names_no_region_is_an_error() -> None:
    """Nothing to correct it with, and no loop."""
    with scripted(lambda call: error_answer(301, "PermanentRedirect")) as server:
        error, _ = await fail_to_connect(config("bucket", server.url))
        assert isinstance(error, WrongRegion)
        assert len(server.calls) < 10


async def test_regions_that_point_at_each_other_are_an_error() -> None:
    """A server that is never content ends the start, not in a loop."""

    def elsewhere(call: Call) -> bytes:
        signature = signature_of(call)
        assert signature is not None
        other = "eu-west-3" if signature.region != "eu-west-3" else "eu-west-1"
        return error_answer(301, "PermanentRedirect", x_amz_bucket_region=other)

    with scripted(elsewhere) as server:
        error, elapsed_s = await fail_to_connect(config("bucket", server.url))
    assert isinstance(error, WrongRegion)
    assert elapsed_s < PATIENCE_S


# -- what connect gives -----------------------------------------------------------------------


async def test_the_first_page_is_of_the_prefix() -> None:
    """It is also the root directory's, so it need not be asked for again."""
    bucket = make_bucket()
    bucket.objects |= {"dir/one": b"1", "other/two": b"2"}
    with scripted(bucket) as server:
        began = trio.current_time()
        async with connect(replace(config("", server.url), location=Location("bucket", "dir/")), CRT) as connection:
            assert [each.key for each in connection.root_page.objects] == ["dir/one"]
            assert began <= connection.root_asked_at <= trio.current_time()
        assert {call.query["prefix"] for call in server.calls} == {"dir/"}


# -- trust ------------------------------------------------------------------------------------


@pytest.mark.server
@pytest.mark.parametrize("how", ["option", "variable", "profile"])
async def test_one_ca_choice_reaches_both_clients(
    weed: Server, work: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """LIST by aiobotocore and GET by the CRT over TLS, whichever way the CA is named."""
    authority = make_authority(work / "ca")
    name = weed.make_bucket()
    weed.client.put_object(Bucket=name, Key="object", Body=CONTENT)
    changes = {"ca_bundle": str(authority.bundle)} if how == "option" else {}
    if how == "variable":
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))
    if how == "profile":
        (work / "config").write_text(f"[default]\nca_bundle = {authority.bundle}\n", encoding="utf-8")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(work / "config"))
    with proxy(weed.url, tls=authority.server) as front:
        async with connect(config(name, front.url, **changes), CRT) as connection:
            (found,) = (await connection.catalogue.list_page("")).objects
            assert await connection.reader.get_range(found.id, ByteRange(0, 10)) == CONTENT
        assert front.count() == 4


async def test_a_certificate_of_another_ca_is_not_trusted(work: Path) -> None:
    """Within 15 s, with the attempts that a user has; not a byte of the request was sent."""
    trusted, real = make_authority(work / "trusted"), make_authority(work / "real", "somebody else")
    with scripted(make_bucket(), tls=real.server) as server:
        s3 = config("bucket", server.url, ca_bundle=str(trusted.bundle), max_attempts=ATTEMPTS)
        error, elapsed_s = await fail_to_connect(s3)
        assert type(error) is UntrustedCertificate
        assert elapsed_s < PATIENCE_S
        assert server.calls == []


async def test_the_systems_cas_do_not_trust_a_private_one(work: Path) -> None:
    """Without any choice of the user's, too."""
    with scripted(make_bucket(), tls=make_authority(work).server) as server:
        error, elapsed_s = await fail_to_connect(config("bucket", server.url, max_attempts=ATTEMPTS))
    assert type(error) is UntrustedCertificate
    assert elapsed_s < PATIENCE_S


async def test_a_certificate_for_another_host_is_not_trusted(work: Path) -> None:
    """The right CA is not enough."""
    authority = make_authority(work, address="127.0.0.2")
    with scripted(make_bucket(), tls=authority.server) as server:
        s3 = config("bucket", server.url, ca_bundle=str(authority.bundle), max_attempts=ATTEMPTS)
        error, elapsed_s = await fail_to_connect(s3)
    assert type(error) is UntrustedCertificate
    assert elapsed_s < PATIENCE_S


# -- endpoints --------------------------------------------------------------------------------


def html(call: Call) -> bytes:
    return answer(200, b"<!DOCTYPE html><html><body>Welcome to nginx!</body></html>", Content_Type="text/html")


def html_404(call: Call) -> bytes:
    return answer(404, b"<html><body>404 Not Found</body></html>", Content_Type="text/html")


def empty(call: Call) -> bytes:
    return answer(200)


def json_answer(call: Call) -> bytes:
    return answer(200, b'{"status": "ok"}', Content_Type="application/json")


def smtp(call: Call) -> bytes:
    return b"220 mail.example.com ESMTP\r\n\r\n"


def refusal(status: int, code: str) -> Callable[[Call], bytes]:
    return lambda call: error_answer(status, code)


ENDPOINTS: dict[str, tuple[Callable[[Call], bytes], type[StoreError] | tuple[type[StoreError], ...]]] = {
    "html": (html, NotS3),
    "html 404": (html_404, NotS3),
    "empty": (empty, NotS3),
    "json": (json_answer, NotS3),
    "another protocol": (smtp, StoreFailure),
    "drops": (lambda call: DROP, (StoreUnreachable, StoreFailure)),
    "no bucket": (refusal(404, "NoSuchBucket"), BucketNotFound),
    "access denied": (refusal(403, "AccessDenied"), AccessDenied),
    "expired": (refusal(400, "ExpiredToken"), ExpiredCredentials),
    "skewed": (refusal(403, "RequestTimeTooSkewed"), ExpiredCredentials),
}


@pytest.mark.parametrize("which", ENDPOINTS)
async def test_an_endpoint_that_cannot_be_used_is_told_apart(which: str) -> None:
    """Each with its own class, within 15 s, with the attempts that a user has."""
    script, kind = ENDPOINTS[which]
    with scripted(script) as server:
        error, elapsed_s = await fail_to_connect(config("bucket", server.url, max_attempts=ATTEMPTS))
    assert isinstance(error, kind)
    assert elapsed_s < PATIENCE_S
    assert error.bucket == "bucket"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_closed_port_is_unreachable(scheme: str) -> None:
    """Connection refused, within 15 s."""
    s3 = config("bucket", f"{scheme}://127.0.0.1:{free_port()}", max_attempts=ATTEMPTS)
    error, elapsed_s = await fail_to_connect(s3)
    assert type(error) is StoreUnreachable
    assert elapsed_s < PATIENCE_S


async def test_a_host_that_has_no_address_is_unreachable() -> None:
    """Reserved by RFC 2606, so no resolver knows it."""
    error, elapsed_s = await fail_to_connect(config("bucket", "http://s3.invalid", max_attempts=ATTEMPTS))
    assert type(error) is StoreUnreachable
    assert elapsed_s < PATIENCE_S


async def test_tls_to_a_plain_server_and_plain_to_a_tls_server(work: Path) -> None:
    """The scheme is wrong: an error of ours in time, whichever way round."""
    with scripted(make_bucket()) as plain:
        error, elapsed_s = await fail_to_connect(config("bucket", plain.url.replace("http:", "https:")))
        assert isinstance(error, StoreUnreachable)
        assert elapsed_s < PATIENCE_S
    with scripted(make_bucket(), tls=make_authority(work).server) as secure:
        error, elapsed_s = await fail_to_connect(config("bucket", secure.url.replace("https:", "http:")))
        assert isinstance(error, (StoreUnreachable, StoreFailure, NotS3))
        assert elapsed_s < PATIENCE_S


def crt_refused(call: Call) -> bytes:
    return error_answer(403, "AccessDenied") if is_from_crt(call) else make_bucket()(call)


def crt_hangs(call: Call) -> bytes:
    return HANG if is_from_crt(call) else make_bucket()(call)


async def test_endpoints_that_use_up_the_patience_are_told_apart() -> None:
    """All at once, because each takes its time: the reason is the last answer, where there was one."""
    never: list[tuple[Callable[[Call], bytes], type[StoreError]]] = [
        (lambda call: HANG, StoreUnreachable),
        (refusal(503, "SlowDown"), StoreThrottled),
        (refusal(500, "InternalError"), StoreFailure),
        (crt_hangs, StoreUnreachable),
    ]
    ended: list[tuple[type[StoreError], type[StoreError], float]] = []

    async def attempt(script: Callable[[Call], bytes], kind: type[StoreError]) -> None:
        with scripted(script) as server:
            error, elapsed_s = await fail_to_connect(config("bucket", server.url, max_attempts=ATTEMPTS))
        ended.append((type(error), kind, elapsed_s))

    async with trio.open_nursery() as nursery:
        for script, kind in never:
            nursery.start_soon(attempt, script, kind)
    assert len(ended) == len(never)
    for found, kind, elapsed_s in ended:
        assert found is kind
        assert elapsed_s < PATIENCE_S


async def test_the_crt_is_proven_too() -> None:
    """A server that serves aiobotocore and not the CRT is no server to mount from."""
    with scripted(crt_refused) as server:
        error, _ = await fail_to_connect(config("bucket", server.url))
    assert type(error) is AccessDenied


@pytest.mark.server
@pytest.mark.parametrize(
    ("variable", "value", "kind"),
    [("AWS_ACCESS_KEY_ID", "UNKNOWN", BadCredentials), ("AWS_SECRET_ACCESS_KEY", "wrong", BadCredentials)],
)
async def test_wrong_keys_are_bad_credentials(
    weed: Server, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, kind: type[StoreError]
) -> None:
    """As a real server refuses them."""
    monkeypatch.setenv(variable, value)
    error, _ = await fail_to_connect(config(weed.make_bucket(), weed.url))
    assert type(error) is kind


@pytest.mark.server
async def test_a_bucket_that_is_not_there(weed: Server, moto_server: Server) -> None:
    """By both real servers."""
    for server in (weed, moto_server):
        error, _ = await fail_to_connect(config("no-such-bucket", server.url))
        assert type(error) is BucketNotFound
        assert error.bucket == "no-such-bucket"
