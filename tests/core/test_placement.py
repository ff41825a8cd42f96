"""Blocks over directories by weight."""

from collections import Counter

from s3mount.core.placement import Place, choose

NAMES = [n.to_bytes(20, "little") for n in range(6000)]


def test_each_gets_its_share() -> None:
    """Blocks are spread in proportion to the weights."""
    places = [Place(b"/a", 1.0), Place(b"/b", 2.0), Place(b"/c", 3.0)]
    counts = Counter(choose(name, places) for name in NAMES)
    assert all(abs(counts[index] - 1000 * (index + 1)) < 150 for index in range(3))


def test_a_directory_that_comes_moves_only_what_it_gets() -> None:
    """With one directory more every block stays where it was, or moves there."""
    before = [Place(b"/a", 1.0), Place(b"/b", 1.0)]
    after = [*before, Place(b"/c", 1.0)]
    moved = [choose(name, after) for name in NAMES if choose(name, after) != choose(name, before)]
    assert set(moved) == {2}
    assert abs(len(moved) - 2000) < 200


def test_the_order_does_not_matter() -> None:
    """Mounts that list the same directories in another order put a block in the same."""
    places = [Place(b"/a", 1.0), Place(b"/b", 2.0)]
    assert all(places[choose(name, places)] == places[::-1][choose(name, places[::-1])] for name in NAMES[:500])
    assert choose(NAMES[0], places[:1]) == 0
