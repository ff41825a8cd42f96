"""What a writer does about failures: every call failing once, twice and always, before the write and after it."""

from collections.abc import Awaitable, Callable
from typing import Literal

import pytest
import trio
from trio.testing import MockClock

from s3mount.core.backoff import Patience
from s3mount.core.ranges import ByteRange
from s3mount.errors import (
    AccessDenied,
    AlreadyExists,
    ObjectChanged,
    StoreError,
    StoreFailure,
    StoreTimeout,
    UploadNotFound,
)
from s3mount.store.guarded_writer import GuardedWriter, WriteGuardConfig
from s3mount.store.patient_writer import TOKEN, PatientWriter
from s3mount.store.retries import Retries
from s3mount.store.writing import NEW, PLAIN, Attributes, Condition
from s3mount.units import MIB
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter, FaultyWriter, Loss

Lost = Literal["request", "answer"]
LOST: tuple[Lost, ...] = ("request", "answer")


class Bucket:
    """A fake bucket whose writer loses `losses` calls of one method.

    Attributes:
        other: another client, to whom nothing happens.
    """

    def __init__(self, method: str, lost: Lost, losses: int, error: StoreError | None = None) -> None:
        self.fake = FakeStore()
        self.other = FakeWriter(self.fake)
        self._left = losses

        def fault(name: str, key: str, number: int) -> Loss | None:
            if name != method or not self._left:
                return None
            self._left -= 1
            return (lost, error or StoreFailure("lost"))

        patience = Patience(60.0, window_s=0.0, max_attempts=4)
        self.writer = PatientWriter(FaultyWriter(self.other, fault), Retries(patience, chance=lambda: 0.0))

    def content(self, key: str) -> bytes:
        return self.fake.objects[key][1]


async def _put(bucket: Bucket) -> None:
    written = await bucket.writer.put("object", [b"content"], NEW)
    assert bucket.fake.objects["object"][0].id == written.id


async def _replace(bucket: Bucket) -> None:
    old = bucket.fake.put("object", b"old")
    written = await bucket.writer.put("object", [b"content"], Condition(old.etag))
    assert bucket.fake.objects["object"][0].id == written.id


async def _upload(bucket: Bucket) -> None:
    source = bucket.fake.put("source", b"content")
    upload = await bucket.writer.create_upload("object")
    await bucket.writer.upload_part(upload, 1, [b"not this"])
    part = await bucket.writer.copy_part(upload, 1, source, ByteRange(0, 7))
    assert (await bucket.writer.list_parts(upload)).parts == (part,)
    written = await bucket.writer.complete(upload, [part], NEW)
    assert bucket.fake.objects["object"][0].id == written.id


async def _link(bucket: Bucket) -> None:
    await bucket.writer.put("source", [b"content"])
    written = await bucket.writer.copy(bucket.fake.objects["source"][0], "object", NEW)
    assert bucket.fake.objects["object"][0].id == written.id


async def _link_with_attributes(bucket: Bucket) -> None:
    source = bucket.fake.put("source", b"content")
    written = await bucket.writer.copy(bucket.fake.objects["source"][0], "object", NEW, Attributes({}, {"mode": "1"}))
    assert source.etag != written.id.etag


async def _clean(bucket: Bucket) -> None:
    upload = await bucket.writer.create_upload("gone")
    assert upload.upload_id in {each.upload_id for each in (await bucket.writer.list_uploads("")).uploads}
    await bucket.writer.abort(upload)
    for key in ("1", "2", "3"):
        bucket.fake.put(key, b"x")
    await bucket.writer.delete("1")
    assert await bucket.writer.delete_many(["2", "3"]) == {}
    bucket.fake.put("object", b"content")
    await bucket.writer.describe("object")


PROGRAMS: dict[str, Callable[[Bucket], Awaitable[None]]] = {
    "put": _put, "replace": _replace, "upload": _upload, "link": _link, "attributes": _link_with_attributes,
    "clean": _clean,
}  # fmt: skip
METHODS = {
    "put": ("put",),
    "replace": ("put", "describe"),
    "upload": ("create_upload", "upload_part", "copy_part", "list_parts", "complete"),
    "link": ("put", "copy", "describe"),
    "attributes": ("copy",),
    "clean": ("list_uploads", "abort", "delete", "delete_many", "describe"),
}
CASES = [(program, method) for program, methods in METHODS.items() for method in methods]


@pytest.mark.parametrize("losses", [1, 2, 3])
@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize(("program", "method"), CASES)
async def test_what_was_lost_is_done_once(
    autojump_clock: MockClock, program: str, method: str, lost: Lost, losses: int
) -> None:
    """A request or its answer lost once, twice, or all but the last time: the program sees plain success."""
    bucket = Bucket(method, lost, losses)
    await PROGRAMS[program](bucket)
    assert bucket.content("object") == b"content"
    assert set(bucket.fake.objects) <= {"object", "source"}


#: Answers always lost: the second attempt is refused, and the object there has the token of the first.
KNOWN = [("put", "put"), ("replace", "put"), ("upload", "complete"), ("link", "copy"), ("attributes", "copy")]
#: `describe` is asked by these programs only after a refusal.
ASKED = [case for case in CASES if case[1] != "describe" or case[0] == "clean"]


@pytest.mark.parametrize(("program", "method"), KNOWN)
async def test_a_conditional_write_needs_no_answer(autojump_clock: MockClock, program: str, method: str) -> None:
    """Every answer is lost, and the write is recognised by what is there."""
    bucket = Bucket(method, "answer", 1_000)
    await PROGRAMS[program](bucket)
    assert bucket.content("object") == b"content"


@pytest.mark.parametrize(
    ("program", "method", "lost"),
    [(*case, lost) for case in ASKED for lost in LOST if case not in KNOWN or lost == "request"],
)
async def test_what_is_always_lost_fails_as_it_failed(
    autojump_clock: MockClock, program: str, method: str, lost: Lost
) -> None:
    """After all attempts the failure comes out, not a refusal that its own write caused."""
    bucket = Bucket(method, lost, 1_000)
    with pytest.raises(StoreFailure, match="lost"):
        await PROGRAMS[program](bucket)


@pytest.mark.parametrize(("program", "method"), ASKED)
async def test_what_s3_refuses_is_asked_once(autojump_clock: MockClock, program: str, method: str) -> None:
    """Access denied comes out at once, whatever was asked."""
    bucket = Bucket(method, "request", 1, AccessDenied("no"))
    with pytest.raises(AccessDenied):
        await PROGRAMS[program](bucket)


async def test_another_writers_success_is_not_taken_for_ours(autojump_clock: MockClock) -> None:
    """The request was lost, and meanwhile somebody wrote the very same bytes: exactly one of us has won."""
    for method, call in (
        ("put", lambda bucket: bucket.writer.put("object", [b"same"], NEW)),
        ("copy", lambda bucket: bucket.writer.copy(bucket.fake.objects["source"][0], "object", NEW)),
    ):
        bucket = Bucket(method, "request", 1)
        bucket.fake.put("source", b"same")
        await bucket.other.put("object", [b"same"], NEW, Attributes({}, {TOKEN: "theirs"}))
        with pytest.raises(AlreadyExists):
            await call(bucket)


async def test_a_version_that_somebody_replaced_is_not_ours(autojump_clock: MockClock) -> None:
    """A lost replacement, and then another client's: ObjectChanged, and theirs stays."""
    bucket = Bucket("put", "request", 1)
    old = bucket.fake.put("object", b"old")
    bucket.fake.put("object", b"theirs")
    with pytest.raises(ObjectChanged):
        await bucket.writer.put("object", [b"ours"], Condition(old.etag))
    assert bucket.content("object") == b"theirs"


async def test_an_upload_that_somebody_aborted_is_not_ours(autojump_clock: MockClock) -> None:
    """A lost complete of an upload that is gone: UploadNotFound, though an object is there."""
    bucket = Bucket("complete", "request", 1)
    bucket.fake.put("object", b"theirs")
    upload = await bucket.writer.create_upload("object")
    part = await bucket.writer.upload_part(upload, 1, [b"content"])
    await bucket.other.abort(upload)
    with pytest.raises(UploadNotFound):
        await bucket.writer.complete(upload, [part])


async def test_a_refusal_without_doubt_costs_no_head(autojump_clock: MockClock) -> None:
    """A put that is refused at once is one request; a copy two, because S3 says the same of both conditions."""
    bucket = Bucket("", "request", 0)
    source = bucket.fake.put("source", b"x")
    with pytest.raises(AlreadyExists):
        await bucket.writer.put("source", [b"y"], NEW)
    assert bucket.other.counts == {"puts": 1}
    bucket.fake.put("object", b"x")
    with pytest.raises(AlreadyExists):
        await bucket.writer.copy(bucket.fake.objects[source.key][0], "object", NEW)
    assert bucket.other.counts == {"puts": 1, "copies": 1, "calls": 1}


async def test_every_object_has_a_token_of_its_own() -> None:
    """Beside the caller's metadata; a copy keeps its source's unless it gets attributes."""
    bucket = Bucket("", "request", 0)
    await bucket.writer.put("1", [b"x"], attributes=Attributes({}, {"mode": "7"}))
    await bucket.writer.put("2", [b"x"])
    source = bucket.fake.objects["1"][0]
    await bucket.writer.copy(source, "kept")
    await bucket.writer.copy(source, "new", attributes=PLAIN)
    tokens = {}
    for key in bucket.fake.objects:
        tokens[key] = (await bucket.writer.describe(key)).attributes.metadata[TOKEN]
    assert tokens["kept"] == tokens["1"]
    assert len(set(tokens.values())) == 3
    assert (await bucket.writer.describe("1")).attributes.metadata["mode"] == "7"


async def test_of_many_only_what_failed_is_deleted_again(autojump_clock: MockClock) -> None:
    """A key that fails and may pass is asked again alone, a refused one is told, an odd one goes by itself."""

    class Shaky(FakeWriter):
        asked: list[list[str]] = []  # noqa: RUF012  one bucket, one test

        async def delete_many(self, keys: object) -> dict[str, StoreError]:
            names = list(keys)  # type: ignore[call-overload]
            self.asked.append(names)
            errors: dict[str, StoreError] = {"denied": AccessDenied("no")} if "denied" in names else {}
            if len(self.asked) < 3:
                errors["slow"] = StoreFailure("later")
            for key in names:
                if key not in errors:
                    self.store.delete(key)
            return errors

    fake = FakeStore()
    writer = Shaky(fake)
    patient = PatientWriter(writer, Retries(Patience(60.0, 0.0, 4), chance=lambda: 0.0))
    for key in ("a", "slow", "denied", "\x01"):
        fake.put(key, b"x")
    refused = await patient.delete_many(["a", "slow", "denied", "\x01"])
    assert {key: type(error) for key, error in refused.items()} == {"denied": AccessDenied}
    assert writer.asked == [["a", "slow", "denied"], ["slow"], ["slow"]]
    assert set(fake.objects) == {"denied"}


async def test_large_bodies_have_longer(autojump_clock: MockClock) -> None:
    """The deadline grows by a second for each MiB, of one attempt and of all; what stalls fails then."""
    fake = FakeStore()
    writer = FakeWriter(fake, latency_s=65.0)
    lost = FaultyWriter(writer, lambda name, key, number: ("request", StoreFailure("lost")) if number == 1 else None)
    guarded = GuardedWriter(lost, WriteGuardConfig(deadline_s=60.0))
    patient = PatientWriter(guarded, Retries(Patience(60.0, 0.0, 2), chance=lambda: 0.0))
    await patient.put("large", [bytes(8 * MIB)])
    began = trio.current_time()
    with pytest.raises(StoreTimeout, match="60 s"):
        await patient.put("small", [b"x"])
    assert trio.current_time() - began == pytest.approx(60.0, abs=0.1)
