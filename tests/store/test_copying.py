"""Copies by the server: one request for small objects, parts beside each other for large ones, nothing left behind."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.ranges import ByteRange
from s3mount.errors import AccessDenied, AlreadyExists, ObjectChanged, StoreError
from s3mount.store.conditions import Conditions, find_conditions
from s3mount.store.copying import copy_object
from s3mount.store.writing import NEW, Attributes, Part, Upload
from s3mount.units import MIB
from tests.store.writers import server_bucket
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter
from tests.support.servers import Server

LARGE = 128 * MIB + 1


class SparseWriter(FakeWriter):
    """A bucket with one large object that is not in memory: what is copied of it is only noted.

    Args:
        fault: gets the number of a part; returns what goes wrong with it.
    """

    def __init__(self, fault: Callable[[int], StoreError | None] = lambda number: None, latency_s: float = 1.0) -> None:
        super().__init__(FakeStore(), latency_s=latency_s)
        self.spans: dict[int, ByteRange] = {}
        self.at_once = self.most_at_once = 0
        self._fault = fault

    async def copy_part(self, upload: Upload, number: int, source: ObjectId, span: ByteRange) -> Part:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self._arrived("copies")
        finally:
            self.at_once -= 1
        error = self._fault(number)
        if error is not None:
            raise error
        self.spans[number] = span
        return self._keep(upload, number, bytes(5 * MIB))

    def large(self, size: int) -> ObjectStat:
        """An object that says it has that size."""
        stat, content = self.store.objects[self.store.put("source", b"").key]
        self.store.objects["source"] = (stat._replace(size=size), content)
        self._attributes[stat.id] = Attributes({"content-type": "application/x-tar"}, {"mode": "7"})
        return stat._replace(size=size)


async def test_a_small_object_is_one_request(autojump_clock: MockClock) -> None:
    """Up to 128 MiB."""
    writer = SparseWriter()
    await copy_object(writer, writer.large(LARGE - 1), "copy")
    assert writer.counts == {"copies": 1}


async def test_a_large_object_is_parts_beside_each_other(autojump_clock: MockClock) -> None:
    """A GiB: 16 parts at once, all bytes in order, with the attributes of the source; 4 requests' time in all."""
    writer = SparseWriter()
    began = trio.current_time()
    written = await copy_object(writer, writer.large(1024 * MIB), "copy")
    assert trio.current_time() - began == pytest.approx(4.0)
    assert writer.counts == {"copies": 16, "calls": 3}
    assert [writer.spans[number] for number in range(1, 17)] == [
        ByteRange(start, start + 64 * MIB) for start in range(0, 1024 * MIB, 64 * MIB)
    ]
    found = await writer.describe("copy")
    assert found.stat.id == written.id
    assert found.attributes == Attributes({"content-type": "application/x-tar"}, {"mode": "7"})
    assert writer.uploads == {}


async def test_a_larger_object_keeps_to_few_at_once(autojump_clock: MockClock) -> None:
    """2 GiB: sixteen parts at once, never more."""
    writer = SparseWriter()
    attributes = Attributes({}, {"mode": "9"})
    await copy_object(writer, writer.large(2048 * MIB), "copy", attributes=attributes)
    assert writer.most_at_once == 16
    assert sum(span.length for span in writer.spans.values()) == 2048 * MIB
    assert (await writer.describe("copy")).attributes == attributes


async def test_a_part_that_fails_ends_the_copy(autojump_clock: MockClock) -> None:
    """Its error comes out, the others are not waited for, nothing is written, and the upload is dropped."""
    writer = SparseWriter(lambda number: AccessDenied("no") if number in (3, 4) else None)
    with pytest.raises(AccessDenied):
        await copy_object(writer, writer.large(100 * 1024 * MIB), "copy")
    assert writer.counts["copies"] < 40
    assert writer.uploads == {}
    assert list(writer.store.objects) == ["source"]


async def test_a_cancelled_copy_is_dropped(autojump_clock: MockClock) -> None:
    """Who is killed in the middle of a copy leaves no object and no upload."""
    writer = SparseWriter()
    source = writer.large(1024 * MIB)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(copy_object, writer, source, "copy")
        await trio.sleep(2.5)
        await wait_all_tasks_blocked()
        assert writer.at_once == 16
        nursery.cancel_scope.cancel()
    assert writer.uploads == {}
    assert list(writer.store.objects) == ["source"]


async def test_an_abort_that_hangs_does_not_hold_up_the_caller(autojump_clock: MockClock) -> None:
    """It is given ten seconds; what stays is found by the listing of uploads."""

    class Hanging(SparseWriter):
        async def abort(self, upload: Upload) -> None:
            await trio.sleep_forever()

    writer = Hanging(lambda number: AccessDenied("no"))
    began = trio.current_time()
    with pytest.raises(AccessDenied):
        await copy_object(writer, writer.large(LARGE), "copy")
    assert trio.current_time() - began == pytest.approx(13.0)
    assert len((await writer.list_uploads("")).uploads) == 1


async def test_a_copy_in_parts_keeps_its_conditions(autojump_clock: MockClock) -> None:
    """A replaced source is seen before the first part, an existing target when the parts are put together."""
    writer = SparseWriter()
    source = writer.large(LARGE)
    with pytest.raises(ObjectChanged):
        await copy_object(writer, source._replace(etag='"old"'), "copy")
    assert writer.counts == {"calls": 1}
    writer.store.put("copy", b"there")
    with pytest.raises(AlreadyExists):
        await copy_object(writer, source, "copy", NEW)
    assert writer.uploads == {}
    assert writer.store.objects["copy"][1] == b"there"


async def test_a_fake_bucket_keeps_conditions() -> None:
    """Found out by writing, and nothing is left."""
    writer = FakeWriter(FakeStore())
    assert await find_conditions(writer, "dir/") == Conditions(of_puts=True, of_copies=True)
    assert writer.store.objects == {}


@pytest.mark.server
@pytest.mark.parametrize(
    ("kind", "expected"),
    [("weed", Conditions(of_puts=True, of_copies=True)), ("moto", Conditions(of_puts=True, of_copies=False))],
)
async def test_what_a_server_keeps_is_found_out(
    kind: str, expected: Conditions, keys: None, request: pytest.FixtureRequest
) -> None:
    """SeaweedFS keeps all conditions, moto not those of copies; nothing is left in the bucket."""
    server: Server = request.getfixturevalue({"moto": "moto_server", "weed": "weed"}[kind])
    async with server_bucket(kind, server, "crt") as bucket:
        assert await find_conditions(bucket.writer, "") == expected
        assert bucket.listed() == []


@pytest.mark.server
async def test_a_server_copies_in_parts(keys: None, weed: Server) -> None:
    """Byte for byte, with its metadata, at a real server; and a body larger than all that may be on its way is sent."""
    async with server_bucket("weed", weed, "crt") as bucket:
        content = bytes(range(256)) * (LARGE // 256) + b"x"
        await bucket.writer.put("source", [content], attributes=Attributes({}, {"mode": "7"}))
        source = (await bucket.writer.describe("source")).stat
        await copy_object(bucket.writer, source, "copy", NEW)
        assert bucket.content("copy") == content
        assert (await bucket.writer.describe("copy")).attributes.metadata["mode"] == "7"
        with pytest.raises(AlreadyExists):
            await copy_object(bucket.writer, source, "copy", NEW)
        assert (await bucket.writer.list_uploads("")).uploads == ()
