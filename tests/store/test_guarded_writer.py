"""Limits, deadlines and counters of writes in front of a fake, on a clock that the test moves."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from s3mount.core.ranges import ByteRange
from s3mount.errors import ObjectChanged, ObjectNotFound, StoreTimeout
from s3mount.store.guarded_writer import GuardedWriter, WriteGuardConfig, WriteStatistics
from s3mount.store.writing import Condition, Upload
from s3mount.units import MIB
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter


def make_writer(
    latency_s: float = 0.0, deadline_s: float = 60.0, max_puts: int = 4, max_calls: int = 2
) -> tuple[GuardedWriter, FakeWriter]:
    fake = FakeWriter(FakeStore(), latency_s=latency_s)
    return GuardedWriter(fake, WriteGuardConfig(deadline_s, max_puts, max_calls), bucket="bucket"), fake


async def test_counters_are_what_arrived_at_the_store() -> None:
    """Requests by kind, bytes sent, failures; nothing in flight at the end."""
    writer, fake = make_writer()
    assert writer.statistics() == WriteStatistics()
    source = fake.store.put("source", b"content")
    await writer.put("object", [b"abc", b"de"])
    with pytest.raises(ObjectChanged):
        await writer.put("object", [b"abc"], Condition('"old"'))
    upload = await writer.create_upload("object")
    parts = [await writer.upload_part(upload, 1, [b"1234567"])]
    await writer.copy_part(upload, 2, source, ByteRange(0, 7))
    await writer.list_parts(upload)
    await writer.list_uploads("")
    await writer.complete(upload, parts)
    await writer.abort(upload)
    await writer.copy(fake.store.objects["source"][0], "copy")
    with pytest.raises(ObjectNotFound) as caught:
        await writer.describe("absent")
    assert (caught.value.bucket, caught.value.key, caught.value.operation) == ("bucket", "absent", "HeadObject")
    await writer.delete("copy")
    assert await writer.delete_many(["source", "object"]) == {}
    counted = writer.statistics()
    assert counted == WriteStatistics(
        puts=2, parts=1, copies=2, deletes=2, calls=6, bytes_written=12, failures=2, in_flight=0
    )
    assert counted.requests == 13 == sum(fake.counts.values())


async def test_bodies_and_calls_have_limits_of_their_own(autojump_clock: MockClock) -> None:
    """Twenty puts of 1 s through four places take 5 s, and delay no deletion; another client shares the places."""
    writer, fake = make_writer(latency_s=1.0)
    other = writer.through(fake)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(writer.put, f"{number}", [b"x"])
            nursery.start_soon(other.put, f"other {number}", [b"x"])
            nursery.start_soon(writer.delete, "absent")
        await wait_all_tasks_blocked()
        assert fake.counts == {"puts": 4, "deletes": 2}
        assert writer.statistics().in_flight == other.statistics().in_flight == 6
        writer.check_invariants()
    assert trio.current_time() - began == pytest.approx(5.0)
    assert len(fake.store.objects) == 20


async def test_every_kind_of_request_has_a_deadline(autojump_clock: MockClock) -> None:
    """5 s, and a second for each MiB that moves; the error names operation and key."""
    writer, fake = make_writer(latency_s=100.0, deadline_s=5.0)
    source = fake.store.objects[fake.store.put("object", bytes(2 * MIB)).key][0]
    upload = Upload("object", "upload")
    span = ByteRange(0, 3 * MIB)
    calls: list[tuple[str, float, Callable[[], Awaitable[object]]]] = [
        ("PutObject", 6.0, partial(writer.put, "object", [bytes(MIB)])),
        ("UploadPart", 7.0, partial(writer.upload_part, upload, 1, [bytes(MIB), bytes(MIB)])),
        ("UploadPartCopy", 8.0, partial(writer.copy_part, upload, 1, source.id, span)),
        ("CopyObject", 7.0, partial(writer.copy, source, "object")),
        ("CreateMultipartUpload", 5.0, partial(writer.create_upload, "object")),
        ("CompleteMultipartUpload", 5.0, partial(writer.complete, upload, [])),
        ("AbortMultipartUpload", 5.0, partial(writer.abort, upload)),
        ("ListMultipartUploads", 5.0, partial(writer.list_uploads, "object")),
        ("ListParts", 5.0, partial(writer.list_parts, upload)),
        ("HeadObject", 5.0, partial(writer.describe, "object")),
        ("DeleteObject", 5.0, partial(writer.delete, "object")),
        ("DeleteObjects", 5.0, partial(writer.delete_many, ["object"])),
    ]
    for operation, deadline_s, call in calls:
        began = trio.current_time()
        with pytest.raises(StoreTimeout) as caught:
            await call()
        assert trio.current_time() - began == pytest.approx(deadline_s)
        assert (caught.value.operation, caught.value.key) == (operation, "object")
    assert writer.statistics().failures == len(calls)


async def test_cancelled_writes_give_their_places_back(autojump_clock: MockClock) -> None:
    """In flight and waiting ones alike; the next one goes through, and nothing failed."""
    writer, _ = make_writer(latency_s=1.0)
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(writer.put, f"{number}", [b"x"])
            nursery.start_soon(writer.delete, "absent")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert writer.statistics() == WriteStatistics(puts=4, deletes=2)
    await writer.put("next", [b"x"])
    writer.check_invariants()
