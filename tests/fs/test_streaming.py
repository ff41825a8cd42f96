"""A stream over a bucket in memory: whole or not at all, at the cost of its parts, within its memory."""

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from s3mount.core.ranges import ByteRange
from s3mount.errors import AlreadyExists, NotKept, ObjectChanged, StoreError, StoreFailure
from s3mount.fs.parts import StreamedPart
from s3mount.fs.streaming import StreamingWriter
from s3mount.store.writing import ANYTHING, NEW, Body, Condition
from s3mount.units import KIB, MIB
from tests.fs.write_harness import PART, Streams, failing, ramp, streams


async def write(stream: StreamingWriter, length: int, step: int = 1 * MIB) -> None:
    stop = stream.size + length
    for number, start in enumerate(range(stream.size, stop, step)):
        if number % 2 or not stream.append_nowait(ramp(start, min(step, stop - start))):
            await stream.append(ramp(start, min(step, stop - start)))
        stream.check_invariants()


async def write_all(stream: StreamingWriter, length: int) -> None:
    await write(stream, length)
    await stream.finish(NEW)


async def test_a_small_file_is_one_put() -> None:
    """Up to one part, byte for byte, an object is one PUT and nothing else."""
    for size in (0, 1, PART):
        async with streams() as made:
            stream = StreamingWriter(made.tools, "a")
            await write(stream, size)
            assert "a" not in made.store.objects
            await stream.finish(NEW)
            assert made.content() == ramp(0, size)
            assert made.writer.counts == {"puts": 1}
            await stream.abort()


async def test_parts_go_up_while_it_is_written() -> None:
    """Before the end all but the part that is being filled are in S3, and nothing is visible."""
    async with streams() as made:
        stream = StreamingWriter(made.tools, "a")
        await write(stream, 3 * PART + 10, step=700 * KIB)
        await trio.testing.wait_all_tasks_blocked()
        assert made.writer.counts["parts"] == 3
        assert made.store.objects == {}
        await stream.finish(NEW)
        assert made.content() == ramp(0, 3 * PART + 10)
        assert made.writer.counts == {"parts": 4, "calls": 2}
        await stream.abort()


async def test_small_writes() -> None:
    """Writes of a few bytes make the same object as large ones."""
    async with streams() as made:
        stream = StreamingWriter(made.tools, "a")
        await write(stream, PART + 3000, step=997)
        await stream.finish(ANYTHING)
        assert made.content() == ramp(0, PART + 3000)
        await stream.abort()


async def test_memory_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    """Twelve writers of three parts each, with a slow S3 and memory for six in all, all end, within the budget."""
    async with streams(budget_bytes=6 * PART) as made:
        made.writer.latency_s = 1.0
        most = 0

        async def one(key: str) -> None:
            nonlocal most
            stream = StreamingWriter(made.tools, key)
            for start in range(0, 3 * PART, MIB):
                await stream.append(ramp(start, MIB))
                await trio.lowlevel.checkpoint()
                made.room.check_invariants()
                most = max(most, made.budget.used)
            await stream.finish(NEW)
            await stream.abort()

        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(one, f"k{number}")
        assert len(made.store.objects) == 12
        assert all(content == ramp(0, 3 * PART) for _, content in made.store.objects.values())
        assert most <= made.room.share + made.room.largest_part
        assert made.room.statistics().waits > 0


async def test_readers_are_not_kept_waiting() -> None:
    """Writers that hold all they may, and go on no further, leave half of the budget to readers."""
    async with streams(budget_bytes=8 * PART) as made:
        held = [StreamingWriter(made.tools, f"k{number}") for number in range(6)]
        for stream in held:
            with trio.move_on_after(0.01):
                await stream.append(bytes(PART - 1))
        with trio.fail_after(5):
            await made.budget.acquire(2 * PART)
        made.budget.release(2 * PART)
        for stream in held:
            await stream.abort()


async def test_patches_of_what_is_held() -> None:
    """The header in the first part and the newest bytes are patched after they were sent, by one part each."""
    async with streams() as made:
        stream = StreamingWriter(made.tools, "a")
        await write(stream, 4 * PART + 10)
        await trio.testing.wait_all_tasks_blocked()
        stream.patch(8, b"size")
        stream.patch(4 * PART - 2, b"edge")
        stream.check_invariants()
        assert stream.held_in(ByteRange(4 * PART - 3, 4 * PART + 3)) == [
            (4 * PART - 3, ramp(4 * PART - 3, 1) + b"ed"),
            (4 * PART, b"ge" + ramp(4 * PART + 2, 1)),
        ]
        await stream.finish(NEW)
        wanted = bytearray(ramp(0, 4 * PART + 10))
        wanted[8:12], wanted[4 * PART - 2 : 4 * PART + 2] = b"size", b"edge"
        assert made.content() == wanted
        assert made.tools.counts.resent == 2
        await stream.abort()


async def test_a_patch_of_what_is_gone() -> None:
    """A patch beyond what is held changes nothing and says so; what would be lost was stowed before."""
    kept: dict[int, bytes] = {}

    async def keep(offset: int, body: Body) -> None:
        kept[offset] = b"".join(body)

    async def stow(part: StreamedPart) -> None:
        await part.stow(keep)

    async with streams(budget_bytes=8 * PART) as made:
        stream = StreamingWriter(made.tools, "a", stow=stow)
        await write(stream, 5 * PART)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(NotKept):
            stream.patch(1, bytes(5 * PART - 2))
        await stream.finish(NEW)
        assert made.content() == ramp(0, 5 * PART)
        assert len(kept) >= 3
        assert all(content == ramp(offset, PART) for offset, content in kept.items())
        await stream.abort()


async def test_a_patched_part_is_not_dropped(autojump_clock: trio.testing.MockClock) -> None:
    """A part that was patched stays until S3 has it again, whoever waits for memory."""
    async with streams(budget_bytes=24 * MIB) as made:
        one, other = StreamingWriter(made.tools, "a"), StreamingWriter(made.tools, "b")
        await write(one, PART + 1)
        await trio.testing.wait_all_tasks_blocked()
        made.writer.latency_s = 1.0
        one.patch(0, b"HEAD")
        await write(other, 2 * PART)
        await one.finish(NEW)
        await other.finish(NEW)
        assert made.content("a") == b"HEAD" + ramp(4, PART - 3)
        assert made.content("b") == ramp(0, 2 * PART)
        await one.abort()
        await other.abort()


async def test_a_patch_while_a_part_is_stowed(autojump_clock: trio.testing.MockClock) -> None:
    """A part that is patched while the spool takes it is sent, and given to the spool, again."""
    kept: list[bytes] = []

    async def keep(offset: int, body: Body) -> None:
        content = b"".join(body)
        await trio.sleep(1.0)
        if offset == 0:
            kept.append(content[:4])

    async def stow(part: StreamedPart) -> None:
        await part.stow(keep)

    async with streams(budget_bytes=4 * PART) as made:
        stream = StreamingWriter(made.tools, "a", stow=stow)
        await write(stream, 2 * PART + 2)
        await trio.sleep(0.5)
        stream.patch(0, b"HEAD")
        await trio.sleep(0.1)
        await stream.append(b"!")
        await trio.sleep(5.0)
        await stream.finish(NEW)
        assert made.content() == b"HEAD" + ramp(4, 2 * PART - 2) + b"!"
        assert kept == [ramp(0, 4), b"HEAD"]
        await stream.abort()


async def test_what_fits_in_memory_is_not_stowed() -> None:
    """Of a stream of less than half of the writers' memory nothing goes to the disk; of a larger one what is more."""
    stowed: list[int] = []

    async def keep(offset: int, body: Body) -> None:
        stowed.append(offset)

    async def stow(part: StreamedPart) -> None:
        await part.stow(keep)

    async with streams(budget_bytes=32 * PART) as made:
        stream = StreamingWriter(made.tools, "a", stow=stow)
        for _ in range(8):
            await write(stream, PART)
            await trio.testing.wait_all_tasks_blocked()
        assert stowed == []
        for _ in range(8):
            await write(stream, PART)
            await trio.testing.wait_all_tasks_blocked()
        assert len(set(stowed)) == len(stowed) == 8
        await stream.finish(NEW)
        assert len(made.content()) == 16 * PART
        await stream.abort()


async def test_memory_of_one_that_rests_is_for_another() -> None:
    """What a stream keeps goes to the disk when another writer needs the memory; both are whole."""
    stowed: list[bytes] = []

    async def keep(offset: int, body: Body) -> None:
        stowed.append(b"".join(body))

    async def stow(part: StreamedPart) -> None:
        await part.stow(keep)

    async with streams(budget_bytes=16 * PART) as made:
        one, other = StreamingWriter(made.tools, "a", stow=stow), StreamingWriter(made.tools, "b", stow=stow)
        await write(one, 4 * PART)
        await trio.testing.wait_all_tasks_blocked()
        assert stowed == []
        await write(other, 20 * PART)
        assert ramp(0, PART) in stowed
        await one.finish(NEW)
        await other.finish(NEW)
        assert made.content("a") == ramp(0, 4 * PART)
        assert made.content("b") == ramp(0, 20 * PART)
        await one.abort()
        await other.abort()


async def test_the_size_first() -> None:
    """A file whose size was set first is streamed in equal parts, and what was not written is zeros."""
    async with streams() as made:
        stream = StreamingWriter(made.tools, "a")
        stream.declared = 3 * PART
        await write(stream, 2 * PART + 5)
        await trio.testing.wait_all_tasks_blocked()
        assert made.writer.counts["parts"] == 2
        await stream.finish(NEW)
        assert made.content() == ramp(0, 2 * PART + 5) + bytes(PART - 5)
        await stream.abort()


@pytest.mark.parametrize("first", [10, PART - 1, PART + 7, 3 * PART])
async def test_writing_goes_on_after_fsync(first: int) -> None:
    """What is durable stays so, and what follows makes one object with it; S3 copies what is large enough."""
    async with streams() as made:
        stream = StreamingWriter(made.tools, "a")
        await write(stream, first)
        one = await stream.finish(NEW)
        assert made.content() == ramp(0, first)
        await write(stream, PART + 3)
        assert made.content() == ramp(0, first)
        await stream.finish(Condition(one.id.etag))
        assert made.content() == ramp(0, first + PART + 3)
        assert (made.writer.counts["copies"] > 0) == (first >= PART)
        await stream.abort()


async def test_nothing_new_since_fsync() -> None:
    """A second end without a byte between is the same object, without a request."""
    async with streams() as made:
        stream = StreamingWriter(made.tools, "a")
        await write(stream, PART)
        first = await stream.finish(NEW)
        again = await stream.finish(Condition(first.id.etag))
        assert again.id == first.id
        assert made.content() == ramp(0, PART)
        assert made.writer.counts == {"puts": 1}
        await stream.abort()


async def test_another_host_was_there() -> None:
    """A condition that does not hold fails the end, and leaves the other's object and no upload."""
    for size in (3, 2 * PART + 1):
        for condition, error in ((NEW, AlreadyExists), (Condition('"old"'), ObjectChanged)):
            async with streams() as made:
                made.store.put("a", b"theirs")
                stream = StreamingWriter(made.tools, "a")
                await write(stream, size)
                with pytest.raises(error):
                    await stream.finish(condition)
                assert made.content() == b"theirs"


@pytest.mark.parametrize("call", ["create_upload", "upload_part", "complete", "put"])
async def test_a_call_that_fails(call: str) -> None:
    """Whichever call fails, the end and every later write say so, no object is there and no upload is left."""
    size = 10 if call == "put" else 3 * PART
    async with streams(fault=failing(call)) as made:
        stream = StreamingWriter(made.tools, "a")
        with pytest.raises(StoreFailure):
            await write_all(stream, size)
        await stream.abort()
        with pytest.raises(StoreError):
            await stream.append(b"more")
        with pytest.raises(StoreError):
            await stream.finish(NEW)
        assert made.store.objects == {}


async def test_a_writer_that_is_cancelled() -> None:
    """An end that was cut off has failed: nothing is left, and nothing can follow."""
    async with streams() as made:
        stream = StreamingWriter(made.tools, "a")
        await write(stream, 2 * PART + 1)
        with trio.CancelScope() as scope:
            scope.cancel()
            await stream.finish(NEW)
        assert scope.cancelled_caught
        with pytest.raises(StoreError):
            await stream.append(b"more")
        assert made.store.objects == {}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, PART), st.just(0)),
        st.tuples(st.just("patch"), st.integers(0, 3 * PART), st.integers(1, 200)),
        st.tuples(st.just("finish"), st.just(0), st.just(0)),
        st.tuples(st.just("settle"), st.just(0), st.just(0)),
    ),
    max_size=9,
)


@settings(max_examples=25, deadline=None)
@given(steps)
def test_any_program(program: list[tuple[str, int, int]]) -> None:
    """Appends, patches and fsyncs in any order: what S3 has after each fsync is what was written."""
    trio.run(run_program, program)


async def run_program(program: list[tuple[str, int, int]]) -> None:
    async with streams(budget_bytes=64 * MIB) as made:
        stream, model = StreamingWriter(made.tools, "a"), bytearray()
        for kind, at, length in program:
            await step(made, stream, model, kind, at, length)
            stream.check_invariants()
        await stream.finish(ANYTHING)
        assert made.content() == model
        await stream.abort()


async def step(made: Streams, stream: StreamingWriter, model: bytearray, kind: str, at: int, length: int) -> None:
    if kind == "append":
        data = ramp(len(model) * 7, at)
        await stream.append(data)
        model += data
    elif kind == "patch" and at + length <= len(model):
        try:
            stream.patch(at, b"p" * length)
            model[at : at + length] = b"p" * length
        except NotKept:
            assert sum(len(held) for _, held in stream.held_in(ByteRange(at, at + length))) < length
    elif kind == "finish":
        await stream.finish(ANYTHING)
        assert made.content() == model
    elif kind == "settle":
        await trio.testing.wait_all_tasks_blocked()
