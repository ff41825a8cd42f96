"""The metadata cache with a TTL, one situation each; test_metadata_model.py has the random ones."""

import tracemalloc

import pytest

from s3mount.cache import metadata
from s3mount.cache.ages import MetadataConfig
from s3mount.cache.answers import Absence, Record
from s3mount.cache.metadata import MetadataCache
from s3mount.core.attrs import ObjectStat
from s3mount.core.entry_pages import EntryPages
from s3mount.core.listing import Entry
from s3mount.core.ttl import INDEFINITE, MINIMAL, TimeToLive
from tests.cache.test_metadata import FILE, Timer, at, pages

OTHER = ObjectStat("a", '"2"', 11, 1_700_000_001)
HUNDRED_YEARS_S = 100 * 365 * 86400.0


def cache_for(timer: Timer, ttl: float = 60.0, negative: float | None = None) -> MetadataCache:
    return MetadataCache(timer, MetadataConfig(TimeToLive(ttl), TimeToLive(ttl if negative is None else negative)))


@pytest.fixture
def timer() -> Timer:
    return Timer()


def test_a_listing_answers_for_every_name_and_for_every_other(timer: Timer) -> None:
    """A name that was listed is there, one that was not is absent, both as old as the first page."""
    cache = cache_for(timer)
    asked_at = timer.now
    timer.now += 20
    cache.listings.put("d/", pages("d/", [Entry("sub", None), Entry("a", FILE)]), asked_at)
    assert cache.get("d/a") == Record(at("d/a", FILE), asked_at, asked_at + 60)
    assert cache.get("d/sub") == Record(None, asked_at, asked_at + 60)
    absence = cache.get("d/none")
    assert absence == Absence(asked_at, asked_at + 60)
    assert cache.ages.remaining(absence) == 40
    assert cache.get("a") is None
    timer.now += 40
    assert [cache.get("d/a"), cache.get("d/none"), cache.listings.current("d/")] == [None, None, None]


def test_hits_extend_nothing(timer: Timer) -> None:
    """A name that is asked for all the time expires when its listing does."""
    cache = cache_for(timer, 10.0)
    cache.listings.put("", pages("", [Entry("a", FILE)]), timer.now)
    cache.put("b/x", FILE, timer.now)
    answers = []
    for _ in range(12):
        answers.append([cache.get("a") is not None, cache.get("none") is not None, cache.get("b/x") is not None])
        timer.now += 1
    assert answers == [[True] * 3] * 10 + [[False] * 3] * 2


def test_the_newer_answer_counts_even_when_it_expired_first(timer: Timer) -> None:
    """After a short-lived absence expired, an older record with a longer life does not come back."""
    cache = cache_for(timer, 60.0, negative=5.0)
    cache.put("a", FILE, timer.now)
    cache.listings.put("", pages("", [Entry("b", FILE)]), timer.now)
    timer.now += 1
    for path in ("a", "b"):
        cache.put_absent(path, timer.now)
        assert isinstance(cache.get(path), Absence)
    timer.now += 5
    assert [cache.get("a"), cache.get("b")] == [None, None]


def test_a_contradicted_listing_answers_names_but_not_the_directory(timer: Timer) -> None:
    """A change of one name costs one new listing, not a look-up of each of its other names."""
    cache = cache_for(timer)
    cache.listings.put("", pages("", [Entry("a", FILE), Entry("b", FILE)]), timer.now)
    listed_at = timer.now
    timer.now += 1
    cache.put("b", at("b", FILE), timer.now)
    assert cache.listings.current("") is not None
    cache.put("a", OTHER, timer.now)
    assert cache.listings.current("") is None
    assert cache.get("a") == Record(OTHER, timer.now, timer.now + 60)
    assert cache.get("b") is not None
    cache.listings.put("", pages("", [Entry("a", FILE), Entry("b", FILE)]), listed_at + 0.5)
    assert cache.listings.current("") is None
    timer.now += 1
    cache.listings.put("", pages("", [Entry("a", OTHER), Entry("b", FILE)]), timer.now)
    assert cache.listings.current("") is not None


def test_a_dropped_name_is_unknown_until_asked_again(timer: Timer) -> None:
    """Neither the listing it was in nor a listing already on its way brings a dropped name back."""
    cache = cache_for(timer)
    cache.listings.put("d/", pages("d/", [Entry("a", FILE), Entry("b", FILE)]), timer.now)
    on_its_way = timer.now + 0.5
    timer.now += 1
    cache.drop("d/a")
    assert cache.get("d/a") is None
    assert cache.get("d/b") is not None
    cache.listings.put("d/", pages("d/", [Entry("a", FILE), Entry("b", FILE)]), on_its_way)
    assert [cache.get("d/a"), cache.listings.current("d/")] == [None, None]
    timer.now += 1
    cache.listings.put("d/", pages("d/", [Entry("a", OTHER)]), timer.now)
    assert isinstance(cache.get("d/a"), Record)


def test_a_refresh_forgets_what_is_below_and_what_is_on_its_way(timer: Timer) -> None:
    """A directory's refresh takes its names, listings and own record, not its neighbours."""
    cache = cache_for(timer)
    for path in ("d", "d/a", "d/s/b", "dd", "e/a"):
        cache.put(path, FILE if path.endswith(("a", "b")) else None, timer.now)
    cache.put_absent("d/none", timer.now)
    for key in ("d/", "d/s/", "e/"):
        cache.listings.put(key, pages(key, []), timer.now)
    asked_at = timer.now
    timer.now += 1
    cache.drop_below("d/")
    assert [path for path in ("d", "d/a", "d/s/b", "d/none", "d/other", "dd", "e/a") if cache.get(path)] == [
        "dd",
        "e/a",
    ]
    assert [key for key in ("d/", "d/s/", "e/") if cache.listings.current(key)] == ["e/"]
    cache.put("d/a", FILE, asked_at)
    cache.listings.put("d/", pages("d/", []), asked_at)
    assert [cache.get("d/a"), cache.listings.current("d/")] == [None, None]
    cache.drop_below("")
    assert cache.get("dd") is None
    assert cache.statistics().records == 0


def test_the_minimal_mode_believes_neither_absences_nor_listings(timer: Timer) -> None:
    """Without a TTL unknown names always ask, and a directory is always listed; its names are known for a second."""
    cache = MetadataCache(timer)
    assert cache.ages.remaining(cache.put_absent("a", timer.now)) == 0
    cache.listings.put("", pages("", [Entry("b", FILE)]), timer.now)
    assert [cache.get("a"), cache.get("c"), cache.listings.current("")] == [None, None, None]
    assert cache.get("b") is not None
    timer.now += 1
    assert cache.get("b") is None
    assert cache.last_record("b") is not None


@pytest.mark.parametrize(("ttl", "negative"), [(MINIMAL, TimeToLive(60.0)), (TimeToLive(60.0), MINIMAL)])
def test_what_is_there_and_what_is_not_have_times_of_their_own(
    timer: Timer, ttl: TimeToLive, negative: TimeToLive
) -> None:
    """One TTL may be minimal while the other is not."""
    cache = MetadataCache(timer, MetadataConfig(ttl, negative))
    cache.put("a", FILE, timer.now)
    cache.put_absent("b", timer.now)
    timer.now += 1
    assert (cache.get("a") is None) == ttl.is_minimal
    assert (cache.get("b") is None) == negative.is_minimal


def test_indefinite_has_no_end_but_the_kernel_is_told_one(timer: Timer) -> None:
    """After a year everything is still known, and the kernel is told 100 years."""
    cache = MetadataCache(timer, MetadataConfig(INDEFINITE, INDEFINITE))
    record, absence = cache.put("a", FILE, timer.now), cache.put_absent("b", timer.now)
    cache.listings.put("d/", pages("d/", [Entry("a", FILE)]), timer.now)
    timer.now += 365 * 86400.0
    assert (cache.get("a"), cache.get("b")) == (record, absence)
    assert cache.listings.current("d/") is not None
    assert cache.ages.remaining(record) == cache.ages.remaining(absence) == cache.ages.fresh_s("a") == HUNDRED_YEARS_S
    assert cache.ages.remaining_since("a", timer.now) == HUNDRED_YEARS_S
    cache.check_invariants()


def test_listings_are_bounded_by_their_names(timer: Timer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used listings go when their names are too many; one that is too large is not kept."""
    monkeypatch.setattr(metadata, "MAX_ENTRIES", 100)
    cache = cache_for(timer)
    names = [Entry(f"{n:02}", None) for n in range(29)]
    for key in ("a/", "b/", "c/"):
        cache.listings.put(key, pages(key, names), timer.now)
    assert cache.listings.current("a/") is not None
    cache.listings.put("d/", pages("d/", names), timer.now)
    assert [key for key in ("a/", "b/", "c/", "d/") if cache.listings.current(key)] == ["a/", "c/", "d/"]
    assert cache.statistics().listed_names == 3 * 29
    assert not cache.listings.may_keep(100)
    cache.listings.put("e/", pages("e/", [Entry(f"{n:03}", None) for n in range(100)]), timer.now)
    assert cache.listings.current("e/") is None


def test_answers_about_single_paths_are_bounded(timer: Timer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that probes for ever keeps no more than the newest of its names."""
    monkeypatch.setattr(metadata, "MAX_ANSWERS", 100)
    cache = cache_for(timer)
    for n in range(1000):
        cache.put_absent(f"{n}", timer.now)
    assert cache.statistics().records == 100
    assert [cache.get("0") is None, cache.get("999") is None] == [True, False]


def test_a_listed_name_costs_few_bytes(timer: Timer) -> None:
    """A name of a listing costs under 150 bytes in directories of a hundred, whatever the listing's objects weigh."""
    tracemalloc.start()
    try:
        cache = cache_for(timer)
        before = tracemalloc.get_traced_memory()[0]
        for d in range(200):
            key = f"{d:03}/"
            entries = [Entry(f"{n:06}", ObjectStat(f"{key}{n:06}", f'"{n:032}"', n, n)) for n in range(100)]
            cache.listings.put(key, EntryPages(key, entries), timer.now)
        del entries
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert cache.statistics().listed_names == 20_000
    assert used / 20_000 <= 150


def test_a_listing_from_the_future_is_found(timer: Timer) -> None:
    """check_invariants raises for a listing that was asked for later than now."""
    cache = cache_for(timer)
    cache.listings.put("d/", pages("d/", [Entry("a", None)]), timer.now + 1)
    with pytest.raises(ValueError, match="future"):
        cache.check_invariants()
