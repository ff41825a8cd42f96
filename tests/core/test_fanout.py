"""A listing read in several places, against stores of any order, any guess and any other client."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3mount.core.fanout import MAX_IN_FLIGHT, PagePlan
from tests.core.listing_reader import (
    Bucket,
    Rank,
    Reader,
    Scripted,
    Wild,
    in_no_order,
    in_tree_order,
    plan_for,
    swapped,
)
from tests.core.test_keyspace import named

#: Keys of few characters, so that prefixes, directories and neighbours are everywhere.
few = st.text("ab-/0", min_size=1, max_size=5)
clustered = st.builds(
    lambda head, start, count: [f"{head}{number:04d}" for number in range(start, start + count)],
    st.sampled_from(["", "a", "a/", "m", "zz", "\U0001f600"]), st.integers(0, 9000), st.integers(1, 60),
)  # fmt: skip
key_sets = st.lists(st.one_of(few.map(lambda key: [key]), clustered), min_size=1, max_size=12).map(
    lambda parts: sorted({key for part in parts for key in part})
)
randoms = st.integers(0, 2**32).map(Random)


@settings(max_examples=150)
@given(key_sets, st.integers(1, 4), st.sampled_from(["", "/"]), randoms, st.integers(0, 1))
def test_nothing_is_lost_and_little_is_asked(
    keys: list[str], size: int, delimiter: str, random: Random, is_wild: int
) -> None:
    """Whatever the guesses: each key once, in order; at most 1.2 times the pages, and 2, are asked for."""
    bucket = Bucket(keys, size, delimiter)
    survey = Wild(random, [*bucket.items, *(item + "!" for item in bucket.items), "~"]) if is_wild else None
    reader = Reader(plan_for(delimiter, survey=survey), bucket, random).read_all()
    assert reader.items == bucket.items
    assert reader.sent <= 1.2 * max(1, -(-len(bucket.items) // size)) + 2
    assert reader.busiest <= MAX_IN_FLIGHT


@settings(max_examples=150)
@given(key_sets, st.integers(1, 4), st.sampled_from(["", "/"]), randoms, st.sampled_from([in_tree_order, in_no_order]))
def test_any_order_of_the_store(keys: list[str], size: int, delimiter: str, random: Random, rank: Rank) -> None:
    """A store that claims S3's order and lists in another loses nothing, and gives nothing twice."""
    bucket = Bucket(keys, size, delimiter, rank)
    survey = Wild(random, [*bucket.items, *(item + "!" for item in bucket.items)])
    reader = Reader(plan_for(delimiter, survey=survey), bucket, random).read_all()
    assert sorted(reader.items) == sorted(bucket.items)


@settings(max_examples=150)
@given(key_sets, st.integers(1, 4), randoms, st.integers(0, 1))
def test_another_client_meanwhile(keys: list[str], size: int, random: Random, is_short: int) -> None:
    """Keys there all the time come once; none comes twice, and none that never was; all in order."""
    bucket = Bucket(keys, size, shorten=random if is_short else None)
    mine = set(random.sample(keys, len(keys) // 2))
    ever = set(keys)

    def change() -> None:
        key = random.choice(keys)
        if random.random() < 0.3 and key not in mine:
            bucket.delete(key)
        elif random.random() < 0.3:
            bucket.put(key + random.choice("0a~"))
            ever.update(bucket.items)

    reader = Reader(plan_for(survey=Wild(random, [*keys, *(key + "!" for key in keys)])), bucket, random).read_all(
        change
    )
    assert reader.items == sorted(set(reader.items))
    assert mine <= set(reader.items) <= ever


@settings(max_examples=100)
@given(key_sets, st.integers(1, 4), randoms)
def test_failures_are_told_in_their_place(keys: list[str], size: int, random: Random) -> None:
    """A failed page is told when its turn comes, nothing is asked twice before, and then all goes on."""
    bucket = Bucket(keys, size)
    reader = Reader(plan_for(survey=Wild(random, keys)), bucket, random)
    failures = told = 0
    while not reader.plan.is_finished:
        reader.send()
        if reader.in_flight and random.random() < 0.3:
            reader.plan.failed(reader.in_flight.pop(random.randrange(len(reader.in_flight))), OSError())
            failures += 1
        elif reader.in_flight:
            reader.answer()
        if not reader.take():
            told += reader.plan.pop_failure() is not None
    assert reader.items == bucket.items
    assert told <= failures


@pytest.mark.parametrize("kind", ["padded", "hex"])
@pytest.mark.parametrize(("count", "pages"), [(0, 1), (1, 1), (999, 1), (1000, 1), (1001, 2), (3000, 3), (10_000, 10)])
def test_up_to_ten_pages_cost_just_these(kind: str, count: int, pages: int) -> None:
    """A directory of up to 10,000 entries costs its pages and no request more."""
    keys = named(kind, count)
    reader = Reader(plan_for(), Bucket(keys, 1000)).read_all()
    assert (reader.sent, reader.rounds) == (pages, pages)
    assert reader.items == keys


@pytest.mark.parametrize("kind", ["padded", "unpadded", "hex", "uuid", "classes", "base62", "subtree"])
def test_a_hundred_pages(kind: str) -> None:
    """100,000 names as data sets have them: at most 1.15 times the pages, in 0.4 of the round trips."""
    keys = named(kind, 100_000)
    reader = Reader(plan_for(), Bucket(keys, 1000)).read_all()
    assert reader.items == keys
    assert reader.sent <= 115
    assert reader.rounds <= 40
    assert reader.busiest <= MAX_IN_FLIGHT


def test_three_hundred_pages() -> None:
    """300,000 numbered names: at most 1.05 times the pages, in a fifth of the round trips, 64 pages held."""
    keys = named("padded", 300_000)
    reader = Reader(plan_for(), Bucket(keys, 1000)).read_all()
    assert reader.items == keys
    assert reader.sent <= 315
    assert reader.rounds <= 60
    assert reader.busiest == MAX_IN_FLIGHT


@pytest.mark.parametrize("seed", range(4))
def test_nasty_distributions(seed: int) -> None:
    """Clusters with gaps, and names that thin out exponentially, stay at 1.2 times the pages, and 2."""
    random = Random(seed)
    thinning = {f"{int(2 ** random.uniform(0, 60)):020d}" for _ in range(20_000)}
    clusters = {f"{head}{number:07d}" for head in "abcdefghijklmnopqrst" for number in range(random.randrange(2000))}
    for keys in (thinning, clusters, thinning | clusters):
        reader = Reader(plan_for(), Bucket(keys, 100)).read_all()
        assert reader.items == sorted(keys)
        assert reader.sent <= 1.2 * -(-len(keys) // 100) + 2


def test_a_reader_that_stops_costs_little() -> None:
    """Nothing is asked ahead of the first page, one page after it, and then twice as much as was taken."""
    reader = Reader(PagePlan("", delimiter="", may_split=True, ahead_pages=12), Bucket(named("padded", 2000), 10))
    for taken in range(100):
        while reader.send() or reader.in_flight:
            reader.answer()
        assert reader.sent - reader.plan.statistics().wasted <= taken + min(12, max(1, 2 * (taken - 1))) + 1
        assert taken > 1 or reader.sent == taken + 1
        assert reader.take()
    assert reader.plan.statistics().splits > 0


def test_a_store_without_order_is_read_ahead_by_token() -> None:
    """Without order there is one run, each page asked for once, and one ahead of the reader."""
    bucket = Bucket(named("padded", 500), 10, rank=in_no_order)
    reader = Reader(plan_for(may_split=False), bucket).read_all()
    assert sorted(reader.items) == sorted(bucket.items)
    assert (reader.sent, reader.busiest) == (50, 1)


def test_the_listing_begins_where_it_should() -> None:
    """`start_after` is where the first run begins, and only its first request says so."""
    keys = named("padded", 3000)
    plan = PagePlan("", delimiter="", may_split=True, start_after=keys[499])
    reader = Reader(plan, Bucket(keys, 10)).read_all()
    assert reader.items == keys[500:]
    assert reader.plan.statistics().splits > 0


def test_throttling_halves_once() -> None:
    """16 requests refused at once halve what may be in flight once, and no run starts for a while."""
    reader = Reader(plan_for(), Bucket(named("padded", 10_000), 10))
    while reader.busiest < MAX_IN_FLIGHT:
        reader.send()
        reader.answer()
        while reader.take():
            pass
        reader.send()
    refused, reader.in_flight = reader.in_flight, []
    for ask in refused:
        reader.plan.back_off(ask)
        reader.plan.failed(ask, OSError())
    before = reader.plan.statistics()
    reader.busiest = 0
    while not reader.plan.is_finished:
        if not reader.take() and reader.plan.pop_failure() is None:
            reader.send()
            assert reader.plan.statistics().splits == before.splits or reader.sent - before.asked > 32
            reader.answer()
    assert reader.items == reader.bucket.items
    assert reader.busiest == MAX_IN_FLIGHT // 2


def test_a_guess_beyond_the_end_is_learnt_from() -> None:
    """The empty page of a guess beyond the end is counted as waste, and is the bound of every later guess."""
    survey = Scripted("~")
    reader = Reader(plan_for(survey=survey), Bucket(named("padded", 300), 10)).read_all()
    assert set(survey.bounds[3:]) == {"~"}
    assert (reader.sent, reader.plan.statistics().splits, reader.plan.statistics().wasted) == (31, 1, 1)


def test_a_guess_into_a_gap_is_learnt_from() -> None:
    """A guess that hits what the next run has as well frees its place, and bounds the next guess."""
    keys = [*named("padded", 200), *(f"m{number:03d}" for number in range(200))]
    survey = Scripted("m")
    reader = Reader(plan_for(survey=survey), Bucket(keys, 10))
    while not reader.plan.statistics().splits:
        reader.send()
        reader.answer()
        reader.take()
        reader.send()
    survey.guess = "b"
    reader.read_all()
    assert reader.items == keys
    assert set(survey.bounds[1:]) >= {"m", "b"}
    assert reader.plan.statistics().wasted <= 2
    assert reader.sent <= 42


def test_a_page_out_of_order_ends_the_splitting() -> None:
    """A store found to list in another order costs its pages from there on, and no guess more."""
    bucket = Bucket([f"{number:04d}" for number in range(2000)], 10, rank=swapped("0499", "0500"))
    reader = Reader(plan_for(), bucket).read_all()
    assert sorted(reader.items) == sorted(bucket.items)
    assert reader.rounds > 100
    assert reader.sent <= 1.5 * 200


def test_disorder_among_the_first_pages() -> None:
    """A page out of order before anything was split: no guess is ever made, each page is asked for once."""
    bucket = Bucket([f"{number:04d}" for number in range(2000)], 10, rank=swapped("0049", "0050"))
    reader = Reader(plan_for(), bucket).read_all()
    assert reader.items == bucket.items
    assert (reader.sent, reader.plan.statistics().splits) == (200, 0)


def test_what_the_reader_waits_for_has_room() -> None:
    """When the others hold all the pages they may, a page that failed is asked for again nevertheless."""
    keys = named("padded", 3000)
    reader = Reader(PagePlan("", delimiter="", may_split=True, ahead_pages=12), Bucket(keys, 10))
    for _ in range(20):
        reader.send()
        reader.answer()
        reader.take()
    while reader.take():
        pass
    reader.send()
    needed = min(reader.in_flight, key=lambda ask: ask.token or ask.start_after)
    reader.in_flight.remove(needed)
    reader.plan.failed(needed, OSError())
    for _ in range(12):
        reader.send()
        reader.answer()
    assert not reader.in_flight
    assert reader.plan.pop_failure() is not None
    assert reader.read_all().items == keys
