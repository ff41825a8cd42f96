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
from s3mount.store.patient_writer import TOKEN
from s3mount.store.writing import ANYTHING, NEW, PLAIN, STORAGE_CLASS, TAGS, Attributes, Part, Upload, Writer
from s3mount.units import MIB
from tests.store.writers import server_bucket
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter
from tests.support.servers import Server

LARGE = 128 * MIB + 1
#: All that a copy has of its source.
MADE = Attributes(
    {
        "content-type": "text/csv",
        "expires": "Thu, 01 Dec 2044 16:00:00 GMT",
        STORAGE_CLASS: "STANDARD_IA",
        TAGS: "team=a%20b&x=",
    },
    {"mode": "7"},
)


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

    def large(self, size: int, attributes: Attributes = PLAIN, *, restored: bool = False) -> ObjectStat:
        """An object that says it has that size."""
        self._write("source", b"", ANYTHING, attributes)
        stat = self.store.objects["source"][0]._replace(size=size, restored=restored)
        self.store.objects["source"] = (stat, b"")
        return stat


async def test_a_small_object_is_one_request(autojump_clock: MockClock) -> None:
    """Up to 128 MiB."""
    writer = SparseWriter()
    await copy_object(writer, writer.large(LARGE - 1), "copy")
    assert writer.counts == {"copies": 1}


async def test_a_large_object_is_parts_beside_each_other(autojump_clock: MockClock) -> None:
    """A GiB: 16 parts at once, all bytes in order; 4 requests' time in all."""
    writer = SparseWriter()
    began = trio.current_time()
    written = await copy_object(writer, writer.large(1024 * MIB, MADE), "copy")
    assert trio.current_time() - began == pytest.approx(4.0)
    assert writer.counts == {"copies": 16, "calls": 3}
    assert [writer.spans[number] for number in range(1, 17)] == [
        ByteRange(start, start + 64 * MIB) for start in range(0, 1024 * MIB, 64 * MIB)
    ]
    assert (await writer.describe("copy")).stat.id == written.id
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


async def all_of(writer: Writer, key: str) -> Attributes:
    """What an object has, without the token of the write."""
    found = (await writer.describe(key, has_tags=True)).attributes
    return Attributes(found.headers, {name: value for name, value in found.metadata.items() if name != TOKEN})


@pytest.mark.parametrize("size", [1, LARGE])
async def test_a_copy_is_like_its_source(size: int, autojump_clock: MockClock) -> None:
    """A copy has the class, tags, headers and metadata of its source, made in parts or by one request."""
    writer = SparseWriter()
    source = writer.large(size, MADE)
    await copy_object(writer, source, "copy")
    assert await all_of(writer, "copy") == MADE
    other = Attributes({"content-type": "text/html"}, {"mode": "8"})
    await copy_object(writer, source, "other", ANYTHING, other)
    kept = {name: MADE.headers[name] for name in (STORAGE_CLASS, TAGS)}
    assert await all_of(writer, "other") == Attributes({**other.headers, **kept}, other.metadata)


@pytest.mark.parametrize("size", [1, LARGE])
async def test_a_copy_of_what_was_archived_can_be_read(size: int, autojump_clock: MockClock) -> None:
    """What was restored from an archive has copies of the ordinary class, that can be read."""
    writer = SparseWriter()
    source = writer.large(size, Attributes({STORAGE_CLASS: "GLACIER"}), restored=True)
    await copy_object(writer, source, "copy")
    assert not (await writer.describe("copy")).stat.is_archived


@pytest.mark.server
@pytest.mark.parametrize("client", ["crt", "aiobotocore"])
async def test_a_server_copies_what_its_source_has(client: str, keys: None, weed: Server) -> None:
    """The same at a real server, by either client."""
    async with server_bucket("weed", weed, client) as bucket:
        await bucket.writer.put("source", [b"x"], attributes=MADE)
        source = (await bucket.writer.describe("source")).stat
        await bucket.writer.copy(source, "copy")
        assert await all_of(bucket.writer, "copy") == MADE


@pytest.mark.server
async def test_a_server_copies_in_parts(keys: None, weed: Server) -> None:
    """Byte for byte, with all its source has, at a real server; a body larger than what may be on its way is sent."""
    async with server_bucket("weed", weed, "crt") as bucket:
        content = bytes(range(256)) * (LARGE // 256) + b"x"
        await bucket.writer.put("source", [content], attributes=MADE)
        source = (await bucket.writer.describe("source")).stat
        await copy_object(bucket.writer, source, "copy", NEW)
        assert bucket.content("copy") == content
        assert await all_of(bucket.writer, "copy") == MADE
        with pytest.raises(AlreadyExists):
            await copy_object(bucket.writer, source, "copy", NEW)
        assert (await bucket.writer.list_uploads("")).uploads == ()
