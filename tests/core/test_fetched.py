"""What was fetched before is not planned again, until a read finds it gone."""

from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.fetched import MAX_RANGES, FetchedRanges
from s3mount.core.ranges import ByteRange, Coverage
from tests.core.strategies import spans


@given(st.lists(st.tuples(spans(60, min_length=1), st.integers(0, 9), st.integers(0, 9), st.integers(0, 20))))
def test_a_plan_covers_what_is_new_once(plans: list[tuple[ByteRange, int, int, int]]) -> None:
    """Demand stays one range with the read in it; demand and ahead bring every byte from the read on, none twice."""
    fetched = FetchedRanges()
    seen: set[int] = set()
    for wanted, before, after, ahead in plans:
        fetch = ByteRange(max(0, wanted.start - before), wanted.stop + after)
        window = ByteRange(fetch.stop, fetch.stop + ahead)
        demand, later = fetched.take_new(wanted, fetch, [window] if ahead else [])
        assert demand.intersection(wanted) == wanted
        assert fetch.intersection(demand) == demand
        new = [set(range(*span)) for span in later]
        assert all(piece and not piece & seen for piece in new)
        seen |= set(range(*demand)).union(*new)
        assert set(range(wanted.start, window.stop)) <= seen
        assert all(fetched.coverage.holds(ByteRange(byte, byte + 1)) for byte in seen)


def test_a_read_that_finds_it_gone_forgets_all() -> None:
    """A miss of bytes that were fetched makes everything new again; a miss of others does not."""
    fetched = FetchedRanges()
    fetched.take_new(ByteRange(0, 10), ByteRange(0, 100), [])
    fetched.note_miss(ByteRange(95, 105))
    assert fetched.coverage.length == 100
    fetched.note_miss(ByteRange(95, 100))
    assert fetched.coverage.length == 0


def test_what_never_came_is_new() -> None:
    """A range that was refused or cancelled is planned again, the rest is not."""
    fetched = FetchedRanges()
    fetched.take_new(ByteRange(0, 10), ByteRange(0, 10), [ByteRange(10, 100)])
    fetched.never_came(ByteRange(40, 60))
    assert fetched.take_new(ByteRange(30, 31), ByteRange(30, 31), [ByteRange(31, 100)])[1] == (ByteRange(40, 60),)


def test_random_cells_are_bounded() -> None:
    """However many cells are read, at most MAX_RANGES and one of them are remembered."""
    fetched = FetchedRanges()
    for number in range(MAX_RANGES * 2):
        wanted = ByteRange(number * 10, number * 10 + 1)
        fetched.note_miss(wanted)
        fetched.take_new(wanted, wanted, [])
        assert len(fetched.coverage) <= MAX_RANGES + 1


@given(st.lists(st.tuples(st.booleans(), spans(40)), max_size=30), spans(40, min_length=1))
def test_coverage_is_a_set_of_bytes(steps: list[tuple[bool, ByteRange]], wanted: ByteRange) -> None:
    """Adding, discarding and asking for what is missing are as with a set of numbers."""
    coverage, model = Coverage(), set[int]()
    for is_added, span in steps:
        if is_added:
            coverage.add(span)
            model |= set(range(*span))
        else:
            coverage.discard(span)
            model -= set(range(*span))
        coverage.check_invariants()
        assert coverage.length == len(model)
    missing = [byte for span in coverage.missing(wanted) for byte in range(*span)]
    assert missing == [byte for byte in range(*wanted) if byte not in model]
