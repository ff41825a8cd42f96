"""Extents and part buffers against a bytearray: what a program wrote is what it reads, wherever it lies."""

from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.extents import Extents, Source
from s3mount.core.part_buffer import PartBuffer
from s3mount.core.ranges import ByteRange
from s3mount.core.uploads import MIN_PART, plan_parts

LENGTH = 24
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, LENGTH), st.integers(0, 6)),
        st.tuples(st.just("append"), st.just(0), st.integers(0, 6)),
        st.tuples(st.just("truncate"), st.integers(0, LENGTH), st.just(0)),
        st.tuples(st.just("publish"), st.just(0), st.just(0)),
    ),
    max_size=14,
)


class File:
    """Extents over two arrays, and the one array that they stand for."""

    def __init__(self, base_size: int) -> None:
        self.base = bytes(range(100, 100 + base_size))
        self.model = bytearray(self.base)
        self.local = bytearray()
        self.extents = Extents(base_size)

    def do(self, kind: str, at: int, n: int, fill: int) -> None:
        if kind == "truncate":
            self.model[:] = self.model[:at].ljust(at, b"\0")
            self.local[at:] = b""
            self.extents.truncate(at)
        elif kind == "publish":
            self.base = bytes(self.model)
            self.extents.published()
        else:
            at = len(self.model) if kind == "append" else at
            if n and at > len(self.model):
                self.model.extend(bytes(at - len(self.model)))
            self.model[at : at + n] = bytes([fill]) * n
            if n:
                self.local.extend(bytes(max(0, at - len(self.local))))
                self.local[at : at + n] = bytes([fill]) * n
            self.extents.write(ByteRange(at, at + n))

    def read(self, span: ByteRange) -> bytes:
        sources = {Source.LOCAL: self.local, Source.BASE: self.base, Source.ZEROS: bytes(99)}
        return b"".join(sources[source][start:stop] for (start, stop), source in self.extents.pieces(span))


@given(st.integers(0, LENGTH), steps, st.integers(0, 40), st.integers(0, 40))
def test_pieces_are_the_file(base_size: int, program: list[tuple[str, int, int]], start: int, length: int) -> None:
    """After any writes, appends, truncations and uploads every range reads as a plain file's."""
    file = File(base_size)
    for fill, step in enumerate(program, 1):
        file.do(*step, fill)
        file.extents.check_invariants()
        assert file.extents.size == len(file.model)
        assert file.read(ByteRange(start, start + length)) == file.model[start : start + length]


@given(st.integers(0, LENGTH), steps)
def test_changes_make_the_file(base_size: int, program: list[tuple[str, int, int]]) -> None:
    """The base with the changes over it is the file, and a file without a change is its base."""
    file = File(base_size)
    for fill, step in enumerate(program, 1):
        file.do(*step, fill)
    made = bytearray(file.base[: file.extents.base_stop].ljust(file.extents.size, b"\0"))
    for start, stop in file.extents.changes:
        made[start:stop] = file.local[start:stop]
    assert made == file.model
    assert file.extents.is_changed or file.model == file.base
    plan = plan_parts(len(file.model), file.extents.base_stop, file.extents.changes, MIN_PART)
    assert sum(part.span.length for part in plan) == len(file.model)


@given(st.integers(0, LENGTH), steps)
def test_extents_come_back(base_size: int, program: list[tuple[str, int, int]]) -> None:
    """Extents made of the numbers that a journal keeps read the same, but for copies of the base."""
    file = File(base_size)
    for fill, step in enumerate(program, 1):
        file.do(*step, fill)
    old = file.extents
    file.extents = Extents.restored(old.base_size, old.base_stop, old.size, old.changes)
    file.extents.check_invariants()
    assert file.read(ByteRange(0, old.size)) == file.model
    assert file.extents.is_changed == old.is_changed


def test_local_bytes_stay_when_they_are_published() -> None:
    """What was uploaded is read from here, and is no change any more."""
    extents = Extents()
    extents.write(ByteRange(0, 10))
    extents.published()
    assert not extents.is_changed
    assert extents.pieces(ByteRange(0, 20)) == [(ByteRange(0, 10), Source.LOCAL)]


writes = st.lists(st.one_of(st.integers(1, 5), st.just(40_000)), max_size=6)


@given(writes, st.lists(st.tuples(st.floats(0, 1), st.integers(1, 3), st.booleans()), max_size=4), st.integers(1, 9))
def test_a_part_is_what_was_written(sizes: list[int], patches: list[tuple[float, int, bool]], more: int) -> None:
    """A part reads and is sent as it was written and patched, and what is on its way never changes."""
    part, model = PartBuffer(), bytearray()
    for fill, size in enumerate(sizes):
        part.append(bytes([fill]) * size)
        model += bytes([fill]) * size
    sent = []
    for fill, (share, length, is_sent) in enumerate(patches, 100):
        if is_sent:
            sent.append((part.body(), bytes(model)))
            part.append(b"x" * more)
            model += b"x" * more
        offset = int(share * max(0, len(model) - length))
        data = (bytes([fill]) * length)[: len(model) - offset]
        part.patch(offset, data)
        model[offset : offset + len(data)] = data
        part.check_invariants()
    assert part.read(0, part.size) == model
    assert part.read(3, 41_000) == model[3:41_000]
    assert all(b"".join(body) == content for body, content in sent)
