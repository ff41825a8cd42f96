"""The metadata cache on a clock that the tests turn."""

from collections.abc import Sequence

import pytest

from s3mount.cache.answers import Record
from s3mount.cache.metadata import MAX_MINIMAL_ANSWERS, MetadataCache
from s3mount.core.attrs import ObjectStat
from s3mount.core.entry_pages import EntryPages
from s3mount.core.listing import Entry

FILE = ObjectStat("a", '"1"', 10, 1_700_000_000)


class Timer:
    """Monotonic seconds, by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def at(path: str, found: ObjectStat | None) -> ObjectStat | None:
    """The same object under another key."""
    return None if found is None else found._replace(key=path)


def pages(directory_key: str, entries: Sequence[Entry]) -> EntryPages:
    """A directory's listing; the objects get the keys that they have there."""
    return EntryPages(directory_key, [Entry(each.name, at(directory_key + each.name, each.found)) for each in entries])


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def cache(timer: Timer) -> MetadataCache:
    return MetadataCache(timer)


def test_freshness_counts_from_when_s3_was_asked(cache: MetadataCache, timer: Timer) -> None:
    """An answer that took most of its time to arrive is good only for the rest."""
    asked_at = cache.now()
    timer.now += 0.75
    record = cache.put("a", FILE, asked_at)
    assert cache.ages.remaining(record) == 0.25
    timer.now += 0.125
    assert cache.get("a") is record
    timer.now += 0.125
    assert cache.get("a") is None
    assert cache.ages.remaining(record) == 0.0


def test_an_answer_older_than_its_time_is_returned_but_not_kept(cache: MetadataCache, timer: Timer) -> None:
    """A LIST that took longer than a record lasts answers its caller, and nobody after it."""
    asked_at = cache.now()
    timer.now += 30
    record = cache.put("a", FILE, asked_at)
    assert record.found == FILE
    assert cache.ages.remaining(record) == 0.0
    assert cache.get("a") is None
    assert cache.statistics().records == 0


def test_an_overtaken_answer_does_not_replace_a_newer_one(cache: MetadataCache, timer: Timer) -> None:
    """A slow LIST that was asked before somebody's lookup does not bring the older version back."""
    asked_at = cache.now()
    timer.now += 0.25
    newer = cache.put("a", FILE, cache.now())
    timer.now += 0.25
    assert cache.put("a", None, asked_at).found is None
    assert cache.get("a") is newer


def test_a_directory_is_a_record_without_an_object(cache: MetadataCache) -> None:
    """That a path is a directory is remembered as such, not as a miss."""
    cache.put("d", None, cache.now())
    assert cache.get("d") == Record(None, cache.now(), cache.now() + 1.0)
    assert cache.get("absent") is None


def test_the_kernel_gets_what_is_left(cache: MetadataCache, timer: Timer) -> None:
    """What the kernel may still use falls from the whole time to zero, and is never negative."""
    asked_at = cache.now()
    record = cache.put("a", FILE, asked_at)
    for elapsed, left in [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0), (5.0, 0.0)]:
        timer.now = asked_at + elapsed
        assert cache.ages.remaining(record) == left
        assert cache.ages.remaining_since("a", asked_at) == left


def test_a_dropped_path_asks_again(cache: MetadataCache) -> None:
    """After a contradiction the path is unknown, others are not, and dropping twice is no error."""
    cache.put("a", FILE, cache.now())
    cache.put("b", None, cache.now())
    cache.drop("a")
    cache.drop("a")
    assert cache.get("a") is None
    assert cache.get("b") is not None


def test_an_expired_record_is_still_the_last_one(cache: MetadataCache, timer: Timer) -> None:
    """What was there last is known after it expired, until something newer says otherwise."""
    cache.put("a", FILE, cache.now())
    timer.now += 1000
    assert cache.get("a") is None
    last = cache.last_record("a")
    assert last is not None
    assert last.found == FILE
    cache.put_absent("a", cache.now())
    assert cache.last_record("a") is None


def test_an_inode_stands_in_for_a_record_only_when_nothing_is_known(cache: MetadataCache, timer: Timer) -> None:
    """What an inode remembers counts while it is fresh and the cache has nothing about the path."""
    asked_at = cache.now()
    recalled = cache.recall("a", FILE, asked_at)
    assert recalled is not None
    assert (recalled.found, recalled.asked_at) == (FILE, asked_at)
    cache.put_absent("b", cache.now())
    cache.put("b", None, cache.now())
    assert cache.recall("b", FILE, asked_at) is None
    timer.now += 1
    assert cache.recall("a", FILE, asked_at) is None
    cache.drop_below("")
    timer.now += 0.5
    assert cache.recall("a", FILE, timer.now - 0.6) is None


def test_hits_and_misses_are_counted(cache: MetadataCache, timer: Timer) -> None:
    """Each look-up is one hit or one miss; an expired record is a miss."""
    cache.put("a", FILE, cache.now())
    cache.get("a")
    cache.get("b")
    timer.now += 2
    cache.get("a")
    statistics = cache.statistics()
    assert (statistics.records, statistics.hits, statistics.misses) == (1, 1, 2)


def test_records_are_bounded(cache: MetadataCache) -> None:
    """A listing of more names than the bound keeps the bound, and the newest of them."""
    for number in range(MAX_MINIMAL_ANSWERS + 10):
        cache.put(f"{number}", None, cache.now())
    assert cache.statistics().records == MAX_MINIMAL_ANSWERS
    assert cache.get(f"{MAX_MINIMAL_ANSWERS + 9}") is not None
    assert cache.get("0") is None
    cache.check_invariants()


@pytest.mark.parametrize("spoil", ["slash", "future"])
def test_a_broken_cache_is_found(cache: MetadataCache, spoil: str) -> None:
    """check_invariants raises for a path that ends in a slash, and for a record from the future."""
    cache.check_invariants()
    cache.put("a/" if spoil == "slash" else "a", None, cache.now() + (spoil == "future"))
    with pytest.raises(ValueError, match=r"slash|longer than allowed"):
        cache.check_invariants()
