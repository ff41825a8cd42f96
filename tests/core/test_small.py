"""The planner of small objects: one request for all of it, and no state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.plans import Plan, Situation
from s3mount.core.ranges import ByteRange
from s3mount.core.readahead import SMALL_FILE, is_small
from s3mount.core.small import SmallPlanner
from s3mount.units import MIB
from tests.core.replays import FAR
from tests.core.strategies import spans


@given(span=spans(SMALL_FILE, min_length=1), limit=st.integers(0, 64 * MIB), is_held=st.booleans(), data=st.data())
def test_open_and_every_read_fetch_the_whole_object(
    span: ByteRange, limit: int, *, is_held: bool, data: st.DataObject
) -> None:
    """Up to 1 MiB, open and every read fetch all of it and nothing ahead, and a hit needs no plan."""
    size = data.draw(st.integers(span.stop, SMALL_FILE))
    planner = SmallPlanner(size)
    assert planner.on_open() == ByteRange(0, size)
    assert planner.on_read(span, Situation(limit, FAR, 0.0, is_held)) == Plan(ByteRange(0, size))
    assert planner.on_hit(span)


def test_nothing_is_kept_of_a_closed_object() -> None:
    """Neither its content nor what its readers did, and the next open fetches it again."""
    planner = SmallPlanner(MIB)
    planner.on_refused(planner.on_open())
    planner.on_close()
    assert not planner.keeps_content
    assert not planner.keeps_state
    assert planner.on_open() == ByteRange(0, MIB)


def test_small_is_what_one_request_of_one_mib_brings() -> None:
    """An object that is larger than a part is not, however small the parts are."""
    assert is_small(0, 8 * MIB)
    assert is_small(MIB, 8 * MIB)
    assert not is_small(MIB + 1, 8 * MIB)
    assert not is_small(MIB, MIB - 1)


def test_an_impossible_size_is_a_bug() -> None:
    """check_invariants says so."""
    with pytest.raises(ValueError, match="-1 bytes"):
        SmallPlanner(-1).check_invariants()
    SmallPlanner(0).check_invariants()
