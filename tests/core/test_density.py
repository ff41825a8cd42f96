"""When jumps pay for all of an object; whole objects part by part; families of shards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.density import HOT_BYTES, Density, WholeObject
from s3mount.core.distance import LARGEST_UNIT, SMALLEST_UNIT, Distance, cell_of
from s3mount.core.ranges import ByteRange, Coverage
from s3mount.core.siblings import MAX_FAMILIES, Siblings, SiblingTable, family_of
from s3mount.units import GIB, KIB, MIB
from tests.core.replays import FAR, NO_LIMIT, PART, at
from tests.core.strategies import spans

LATENCY_S = FAR.latency_s


def jumps_until_it_pays(
    size: int, n_bytes: int, *, each_s: float = LATENCY_S, distance: Distance = FAR, siblings: Siblings | None = None
) -> int | None:
    """How many jumps, one after the other, it takes; None if 100,000 do not."""
    density = Density(size, siblings or Siblings())
    for number in range(1, 100_000):
        density.note(n_bytes, number * each_s, distance.latency_s, is_jump=True)
        if density.pays(distance, NO_LIMIT):
            return number
    return None


def test_a_shard_pays_after_three_jumps() -> None:
    """64 MiB at 30 ms and 90 MB/s: three round trips are worth it; next door, or for one byte more, they are not."""
    assert jumps_until_it_pays(HOT_BYTES, 4 * KIB) == 3
    assert jumps_until_it_pays(HOT_BYTES, 4 * KIB, distance=Distance(0.020, 90e6)) == 3
    assert jumps_until_it_pays(HOT_BYTES, 4 * KIB, distance=Distance(0.001, 500e6)) == 9
    assert jumps_until_it_pays(HOT_BYTES + 1, 4 * KIB) == 513


@pytest.mark.parametrize("size", [HOT_BYTES + 1, GIB, 4 * GIB])
def test_small_reads_of_a_large_object_pay_when_every_cell_was_touched(size: int) -> None:
    """At 4 KiB a read, all of an object costs no more than 128 KiB for each read until then."""
    number = jumps_until_it_pays(size, 4 * KIB)
    assert number is not None
    assert size / number <= 128 * KIB


def test_slow_jumps_never_pay() -> None:
    """One read a second of a shard, as a global shuffle makes them, is never worth all of it."""
    assert jumps_until_it_pays(HOT_BYTES, 64 * KIB, each_s=1.1) is None


def test_jumps_side_by_side_count_less() -> None:
    """Eight jumps that wait for one round trip are not three round trips."""
    density = Density(HOT_BYTES, Siblings())
    for _ in range(8):
        density.note(4 * KIB, 5.0, LATENCY_S, is_jump=True)
    assert not density.pays(FAR, NO_LIMIT)


def test_what_does_not_fit_is_not_fetched() -> None:
    """Half of a shard must fit in what may be held ahead, and all of a larger object."""
    for size, least in ((HOT_BYTES, HOT_BYTES // 2), (HOT_BYTES + 1, HOT_BYTES + 1)):
        density = Density(size, Siblings())
        for number in range(10):
            density.note(MIB, number * LATENCY_S, LATENCY_S, is_jump=True)
        assert not density.pays(FAR, least - 1)
        assert density.pays(FAR, least)


def test_readers_side_by_side_pay_for_a_model() -> None:
    """Several readers that went through 1/16 of a large object have it fetched whole, once jumps were seen."""
    density = Density(GIB, Siblings())
    assert not density.pays(FAR, NO_LIMIT, GIB)
    for number in range(3):
        density.note(MIB, number * LATENCY_S, LATENCY_S, is_jump=True)
    assert not density.pays(FAR, NO_LIMIT, GIB // 16 - 1)
    assert density.pays(FAR, NO_LIMIT, GIB // 16)


def test_each_time_is_dearer() -> None:
    """After a promotion the next one takes twice the jumps, and early ones that were forgiven do not count."""
    density = Density(HOT_BYTES, Siblings())
    now, needed = 0.0, []
    for _ in range(3):
        density.promoted()
        number = 0
        while not density.pays(FAR, NO_LIMIT):
            number += 1
            now += LATENCY_S
            density.note(4 * KIB, now, LATENCY_S, is_jump=True)
        needed.append(number)
    assert 6 <= needed[0] < needed[1] < needed[2]
    assert needed[2] >= 3 * needed[0]
    density = Density(HOT_BYTES, Siblings())
    for number in range(20):
        density.note(4 * KIB, number * LATENCY_S, LATENCY_S, is_jump=True)
        density.forgive(4 * KIB)
    assert not density.pays(FAR, NO_LIMIT)


def test_a_learned_family_pays_at_the_first_jump() -> None:
    """Once a shard that was fetched whole was read, the next one is fetched at once; until one was not read."""
    siblings = Siblings()
    WholeObject(HOT_BYTES, PART, siblings, Coverage()).use(HOT_BYTES // 4)
    assert jumps_until_it_pays(HOT_BYTES, 4 * KIB, siblings=siblings) == 1
    unread = WholeObject(HOT_BYTES, PART, siblings, Coverage())
    unread.use(HOT_BYTES // 4 - 1)
    unread.end()
    assert jumps_until_it_pays(HOT_BYTES, 4 * KIB, siblings=siblings) == 3


@given(st.integers(1, 200 * MIB), st.data())
def test_every_part_is_claimed_once(size: int, data: st.DataObject) -> None:
    """Whatever is read, in whatever order and with whatever room, each part is asked for once and in whole."""
    whole = WholeObject(size, PART, None, Coverage())
    claimed: list[ByteRange] = []
    while not whole.hit(0):
        wanted = data.draw(spans(size, MIB, min_length=1))
        limit = data.draw(st.sampled_from([0, PART, 3 * PART + 1]))
        fetch = whole.claim(wanted, limit, is_held=True)
        rest = whole.claim_rest(wanted.stop - 1, limit)
        assert fetch is None or fetch.intersection(wanted) == wanted
        parts = [fetch] if fetch is not None else []
        claimed += [*parts, *rest]
        assert sum(part.length for part in claimed) - whole.used <= max(limit, PART) or not (parts or rest)
        whole.use(data.draw(st.sampled_from([0, MIB, PART])))
        if not parts and not rest:
            claimed += whole.claim_rest(0, NO_LIMIT)
    bounds = sorted(claimed)
    assert [span.start for span in bounds] == [0, *(span.stop for span in bounds[:-1])]
    assert bounds[-1].stop == size
    assert all(span.start % PART == 0 for span in bounds)


def test_parts_come_as_what_came_is_used() -> None:
    """With room for two parts of four a third is fetched when readers used one; until then reads of it are cells."""
    whole = WholeObject(4 * PART, PART, None, Coverage())
    assert whole.claim_rest(0, 2 * PART) == (ByteRange(0, PART), ByteRange(PART, 2 * PART))
    assert whole.claim(at(3 * PART), 2 * PART, is_held=False) is None
    whole.use(PART - 1)
    assert whole.claim(at(3 * PART), 2 * PART, is_held=False) is None
    whole.use(1)
    assert whole.claim(at(3 * PART), 2 * PART, is_held=False) == ByteRange(3 * PART, 4 * PART)
    assert not whole.is_over(at(2 * PART), is_held=False)


def test_a_refused_part_is_claimed_again() -> None:
    """What the budget had no room for is part of the next claim; what was fetched before is of none."""
    fetched = Coverage()
    fetched.add(ByteRange(PART, 3 * PART))
    whole = WholeObject(8 * PART, PART, None, fetched)
    parts = whole.claim_rest(0, NO_LIMIT)
    assert [part.start // PART for part in parts] == [0, 3, 4, 5, 6, 7]
    whole.refused(parts[2])
    assert not whole.hit(1)
    assert whole.claim_rest(0, NO_LIMIT) == (parts[2],)
    assert whole.hit(1)


def test_content_that_is_gone_ends_it() -> None:
    """Three reads of parts that were fetched and are gone, and the object is not held whole any more."""
    whole = WholeObject(8 * PART, PART, None, Coverage())
    whole.claim_rest(0, NO_LIMIT)
    wanted = at(PART)
    for _ in range(3):
        assert not whole.is_over(wanted, is_held=False)
        assert whole.claim(wanted, NO_LIMIT, is_held=False) is None
    assert whole.is_over(wanted, is_held=False)
    assert not whole.is_over(wanted, is_held=True)


def test_a_new_pass_ends_it() -> None:
    """A read at offset 0 of what was fetched and is gone is the start of another pass."""
    whole = WholeObject(8 * PART, PART, None, Coverage())
    assert not whole.is_over(at(0), is_held=False)
    whole.claim_rest(0, NO_LIMIT)
    assert whole.is_over(at(0), is_held=False)


def test_a_part_that_was_nearly_fetched_is_completed() -> None:
    """What was fetched of a part is not fetched again, unless it is a small piece between two gaps."""
    fetched = Coverage()
    fetched.add(ByteRange(0, PART // 2))
    fetched.add(ByteRange(PART + MIB, PART + MIB + 512 * KIB))
    fetched.add(ByteRange(2 * PART + MIB, 2 * PART + 2 * MIB))
    whole = WholeObject(3 * PART, PART, None, fetched)
    assert whole.claim_rest(0, NO_LIMIT) == (
        ByteRange(PART // 2, PART),
        ByteRange(PART, 2 * PART),
        ByteRange(2 * PART, 2 * PART + MIB),
        ByteRange(2 * PART + 2 * MIB, 3 * PART),
    )


# -- families -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        ("d/train-00003-of-00128.bin", "d/train-00004-of-00128.bin", True),
        ("mds/shard.00007.mds", "mds/shard.00120.mds", True),
        ("a/shard.00007.mds", "b/shard.00007.mds", False),
        ("model-00001.safetensors", "model-00001.json", False),
        ("index", "index", True),
    ],
)
def test_families_are_names_but_for_numbers(one: str, other: str, *, are_alike: bool) -> None:
    """Shards of one data set are alike; another directory or extension is another family."""
    assert (family_of(one) == family_of(other)) == are_alike


def test_families_are_bounded() -> None:
    """The table keeps the most recently asked for, and what it knows of them."""
    table = SiblingTable()
    table.of("kept-1").paid()
    for number in range(2 * MAX_FAMILIES):
        table.of("x" * (number + 1))
        assert table.of("kept-2").pays
    assert len(table) == MAX_FAMILIES


# -- distance -------------------------------------------------------------------------------


@given(spans(GIB, 2 * MIB, min_length=1), st.sampled_from([SMALLEST_UNIT, 128 * KIB, LARGEST_UNIT]))
def test_a_cell_is_small(wanted: ByteRange, unit: int) -> None:
    """It holds the read, and is the unit, or the read rounded to 64 KiB."""
    cell = cell_of(wanted, unit, GIB)
    assert cell.intersection(wanted) == wanted
    assert cell.length <= max(unit, wanted.length + 2 * SMALLEST_UNIT - 2)


@given(st.floats(0, 10), st.floats(0, 1e11))
def test_a_unit_follows_the_distance(latency_s: float, bytes_per_s: float) -> None:
    """64 to 256 KiB, at most a sixteenth of what the round trip is worth unless that is less than 64 KiB."""
    distance = Distance(latency_s, bytes_per_s)
    assert distance.unit in (64 * KIB, 128 * KIB, 256 * KIB)
    assert distance.unit <= max(distance.worth / 16, 64 * KIB)
