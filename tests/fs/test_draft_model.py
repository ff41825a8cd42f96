"""Random programs on files being written, with refusals, other hosts and kill -9, against a model.

Whatever happens: an object is always one whole state that the file had; what was acknowledged, by fsync or by close, is
in S3 or comes there after a restart; a read gives what was written.
"""

import tempfile
from pathlib import Path

import trio
import trio.testing
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from s3mount.errors import AlreadyExists, ObjectChanged, S3MountError, StoreFailure
from s3mount.fs.draft import Draft
from s3mount.units import MIB
from tests.fs.write_harness import Streams, Writing, ramp, streams
from tests.support.fake_writer import Loss

KEYS = ("a", "b")
FLAGS = (
    {},
    {"is_truncating": True},
    {"is_append": True},
    {"is_random": True},
    {"is_random": True, "is_truncating": True},
    {"is_exclusive": True},
)

number = st.integers(0, 9)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 1), st.integers(0, len(FLAGS) - 1)),
        st.tuples(st.just("open"), st.integers(0, 1), st.sampled_from([2, 3])),
        st.tuples(st.just("append"), number, st.integers(1, 30)),
        st.tuples(st.just("append"), number, st.just(2 * MIB)),
        st.tuples(st.just("write"), number, st.integers(0, 30)),
        st.tuples(st.just("truncate"), number, st.integers(0, 30)),
        st.tuples(st.just("fsync"), number, st.just(0)),
        st.tuples(st.just("close"), number, st.just(0)),
        st.tuples(st.just("close"), number, st.just(0)),
        st.tuples(st.just("unlink"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("other"), st.integers(0, 1), st.integers(0, 20)),
        st.tuples(st.just("wait"), st.just(0), st.integers(0, 20)),
        st.tuples(st.just("refuse"), st.just(0), st.integers(1, 3)),
        st.tuples(st.just("kill"), st.just(0), st.just(0)),
    ),
    min_size=12,
    max_size=40,
)


class Program:
    """One mount, what its files should have, and every whole state they had.

    Attributes:
        appends: whether the bucket can append, and that is wanted; then some of its answers are lost.
        handles: open ones, in order.
        now: content of the drafts that are not broken.
        promised: what was acknowledged of a key and nobody else wrote after.
        since: that state and those that came after it, one of which S3 has in the end.
    """

    def __init__(self, directory: Path, *, appends: bool) -> None:
        self.directory = directory
        self.appends = appends
        self.handles: list[Draft] = []
        self.now: dict[Draft, bytearray] = {}
        self.states: dict[str, set[bytes]] = {key: set() for key in KEYS}
        self.promised: dict[str, bytes] = {}
        self.since: dict[str, set[bytes]] = {key: set() for key in KEYS}
        self.refusals = 0

    def promise(self, key: str, content: bytes) -> None:
        self.promised[key] = content
        self.since[key] = {content}

    def had(self, key: str, content: bytes) -> None:
        self.states[key].add(content)
        self.since[key].add(content)

    def fault(self, name: str, _key: str, _number: int) -> Loss | None:
        if not self.refusals or name == "abort":  # which leaves an upload for others to abort
            return None
        self.refusals -= 1
        return ("answer" if name == "append" else "request", StoreFailure("503"))


async def run_program(program: list[tuple[str, int, int]], directory: Path, appends: bool) -> None:  # noqa: FBT001
    model = Program(directory, appends=appends)
    async with streams(40 * MIB, model.fault) as made:
        rest = [("other", 1, 20), *program]
        while rest:  # one daemon after the other
            async with trio.open_nursery() as nursery:
                each = Writing(made, nursery, directory, appends=appends)
                await each.drafts.recover()
                for draft in each.drafts.below(""):
                    model.now[draft] = bytearray(model.promised.get(draft.key, b""))
                while rest:
                    (kind, at, value), *rest = rest
                    if kind == "kill":
                        break
                    await step(each, model, kind, at, value)
                    check(each, model)
                await kill(each, model)
                nursery.cancel_scope.cancel()
        model.refusals = 0
        await settle(made, model)


async def kill(each: Writing, model: Program) -> None:
    """Memory goes; a dead daemon's uploads are aborted by who lists them, which is not what is tested here."""
    for draft in {*each.drafts.below(""), *model.handles}:
        draft._content.spooled.abandon()
        stream, draft._content._stream = draft._content._stream, None
        if stream is not None:
            await stream.abort()
    each.drafts._drafts.clear()
    each.drafts._orphans.clear()
    model.handles.clear()
    model.now.clear()


async def settle(made: Streams, model: Program) -> None:
    """The last daemon uploads what was left, and everything promised is in S3."""
    async with trio.open_nursery() as nursery:
        each = Writing(made, nursery, model.directory, appends=model.appends)
        await each.drafts.recover()
        await trio.sleep(40)
        each.drafts.check_invariants()
        assert each.drafts.below("") == []
        for key, content in model.promised.items():
            there = each.made.content(key)
            is_there = there in model.since[key] or (model.appends and there.startswith(content))  # answers may be lost
            assert is_there, f"what was acknowledged of {key} is lost"
        check(each, model)
        nursery.cancel_scope.cancel()


def check(each: Writing, model: Program) -> None:
    for key, (_, content) in each.made.store.objects.items():
        assert content in model.states[key], f"{key} is no state that it had"
    for draft in each.drafts.below(""):
        draft.check_invariants()


def note(model: Program, draft: Draft) -> None:
    if draft in model.now and not draft.is_orphan:
        model.had(draft.key, bytes(model.now[draft]))


async def step(each: Writing, model: Program, kind: str, at: int, value: int) -> None:
    if kind in ("open", "unlink", "other", "wait", "refuse"):
        await on_names(each, model, kind, KEYS[at], value)
    elif model.handles:
        draft = model.handles[at % len(model.handles)]
        try:
            await on_handle(each, model, kind, draft, value)
        except S3MountError:
            if draft.is_stream:
                model.now.pop(draft, None)  # it is over, or had nothing of the change: what it has is not looked at
        if draft in model.now and draft.users:
            await check_content(each, model, draft)


async def check_content(each: Writing, model: Program, draft: Draft) -> None:
    refusals, model.refusals = model.refusals, 0
    try:
        assert await draft.read(0, 99 * MIB) == model.now[draft]
    except ObjectChanged:  # what it was to read from S3 is not there any more, and was not written here
        assert not is_based_on_s3(each, draft)
    model.refusals = refusals


def is_based_on_s3(each: Writing, draft: Draft) -> bool:
    found = each.found(draft.key)
    return (found and found.etag) == (draft.base and draft.base.etag)


async def on_names(each: Writing, model: Program, kind: str, key: str, value: int) -> None:
    if kind == "refuse":
        model.refusals = value
    elif kind == "wait":
        await trio.sleep(value / 10)
    elif kind == "other":
        content = ramp(value, value)
        model.had(key, content)
        model.promised.pop(key, None)
        each.made.store.put(key, content)
    elif kind == "unlink":
        model.promised.pop(key, None)
        each.made.store.delete(key)
        await each.drafts.unlink(key)
    else:
        await open_one(each, model, key, FLAGS[value])


async def open_one(each: Writing, model: Program, key: str, flags: dict[str, bool]) -> None:
    there, known = each.made.store.objects.get(key), each.drafts.find(key)
    try:
        draft = await each.open(key, **flags)
    except AlreadyExists:
        assert flags.get("is_exclusive") or known  # or it says how a stream ended
        assert there or known
        return
    except S3MountError:
        return
    model.handles.append(draft)
    if draft is not known:
        model.now[draft] = bytearray(there[1] if there else b"")
    if flags.get("is_truncating") and (draft in model.now or await is_renewed(draft)):
        model.now[draft] = bytearray()
    note(model, draft)


async def is_renewed(draft: Draft) -> bool:
    """Whether a stream that was over goes on; one that had nothing does not."""
    try:
        await draft.read(0, 1)
    except S3MountError:
        return False
    return True


async def on_handle(each: Writing, model: Program, kind: str, draft: Draft, value: int) -> None:
    content = model.now.get(draft, bytearray())
    if kind == "append":
        data = ramp(len(content) + value, value)
        await draft.append(data)
        content += data
    elif kind == "write":
        await draft.write(value, b"patch")
        content.extend(bytes(max(0, value - len(content))))
        content[value : value + 5] = b"patch"
    elif kind == "truncate":
        await draft.truncate(value)
        content[:] = content[:value].ljust(value, b"\0")
    note(model, draft)
    if kind == "fsync":
        was_unsaved = draft.is_unsaved
        await draft.fsync()
        if was_unsaved and draft in model.now and not draft.is_orphan:
            assert each.made.content(draft.key) == content
            model.promise(draft.key, bytes(content))
    elif kind == "close":
        model.handles.remove(draft)
        await close(each, model, draft)


async def close(each: Writing, model: Program, draft: Draft) -> None:
    was_unsaved = draft.is_unsaved and is_based_on_s3(each, draft)  # else it is refused, now or later
    try:
        await each.drafts.flush(draft)
    finally:
        await each.drafts.release(draft)  # tries again
        is_safe = draft.is_acknowledged or not draft.is_unsaved
        if was_unsaved and is_safe and draft in model.now and not draft.is_orphan:
            model.promise(draft.key, bytes(model.now[draft]))


@settings(max_examples=100, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(steps, st.booleans())
@example([("open", 0, 0), ("fsync", 0, 0), ("truncate", 0, 6), ("write", 0, 0)], True)  # noqa: FBT003
def test_any_program(program: list[tuple[str, int, int]], appends: bool) -> None:  # noqa: FBT001
    """No partial object, no lost acknowledged data, whatever is written, refused, changed by others or killed."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        trio.run(run_program, program, Path(directory), appends, clock=trio.testing.MockClock(autojump_threshold=0))
