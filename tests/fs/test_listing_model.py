"""The whole file system against the past of its bucket: tests.fs.listing_programs with random programs.

Small alphabets make names collide, and be prefixes of each other.
"""

from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from s3mount.cache.metadata import MetadataConfig
from s3mount.core.ttl import INDEFINITE, MINIMAL, TimeToLive
from tests.fs.listing_programs import NEVER_S, World, run

T = TypeVar("T")


def weighted(*choices: tuple[int, st.SearchStrategy[T]]) -> st.SearchStrategy[T]:
    """One of several, as often as their weights say."""
    return st.sampled_from([at for at, (weight, _) in enumerate(choices) for _ in range(weight)]).flatmap(
        lambda at: choices[at][1]
    )


NAMES = ["a", "a-", "a.", "a.b", "a0", "b", "\u00e9", "%2F", "+ #?", '\x01"', "\U0001f600"]
NAME = st.sampled_from(["a", "a", "a", "a-", "b", *NAMES])
PARTS = st.sampled_from(["a", "a", "a-", "b", *NAMES, "", "..", "\0"])
PATHS = st.lists(NAME, min_size=1, max_size=3).map("/".join)
KEYS = weighted((2, PATHS), (1, st.lists(PARTS, min_size=1, max_size=3).map("/".join).filter(bool)))
DEEP = [f"t/{one}/{two}" for one in range(7) for two in range(3)]
WIDE = [f"w/{number:02}" for number in range(30)]
#: Directories that are worth a walk, a background listing, several ranges of keys.
KEY_SETS = st.sampled_from([[], [], [], DEEP, WIDE, WIDE + DEEP])
SOME_PATHS = weighted((1, PATHS), (1, st.sampled_from(["t", "w", "t/1", "t/3/1", "w/07", "w/a"])))
CONFIGS = st.sampled_from([
    MetadataConfig(),
    MetadataConfig(),
    MetadataConfig(TimeToLive(2), TimeToLive(2)),
    MetadataConfig(TimeToLive(2), MINIMAL),
    MetadataConfig(TimeToLive(2), TimeToLive(0.5)),
    MetadataConfig(INDEFINITE, INDEFINITE),
])  # fmt: skip
WORLDS = st.builds(
    lambda keys, more, **rest: World(tuple(more + keys), **rest),
    st.lists(KEYS, min_size=2, max_size=6),
    KEY_SETS,
    config=CONFIGS,
    page=st.sampled_from([1, 2, 3, 5, 1000]),
    is_ordered=st.sampled_from([True, True, True, False]),
    before_s=st.sampled_from([0.0, 0.03, 0.3]),
    after_s=st.sampled_from([0.0, 0.02]),
)
#: Paths by number: the first few are asked for, and changed, again and again.
HOT = st.sampled_from([0, 0, 0, 1, 2])
SMALL = st.integers(0, 7)
FILE_VERBS = st.sampled_from(["stat", "read", "read"])
HANDLE_VERBS = st.sampled_from(["next", "next", "next", "seek", "rewind", "closedir", "close"])
ACTIONS = weighted(
    (5, st.tuples(FILE_VERBS, HOT, SMALL)),
    (3, st.tuples(FILE_VERBS, weighted((1, st.integers(0, 60)), (1, SOME_PATHS)), SMALL)),
    (
        4,
        st.tuples(
            HANDLE_VERBS,
            st.just(""),
            st.integers(0, 60),
        ),
    ),
    (4, st.tuples(st.sampled_from(["opendir", "ls"]), st.sampled_from(["", "", "a", "t", "w", "t/2"]), SMALL)),
    (1, st.tuples(st.just("walk"), st.sampled_from(["", "t"]), SMALL)),
    (1, st.tuples(st.just("probe"), st.sampled_from(["a", "w", "t/2"]), SMALL)),
)
WHEN = st.sampled_from(["now", "now", "before", "after"])
STEPS = weighted(
    (
        9,
        st.tuples(
            st.just("run"),
            st.lists(ACTIONS, min_size=1, max_size=3),
            st.sampled_from([0.0, 0.0, 0.1, 0.6, 1.1, 2.5]),
            st.sampled_from([NEVER_S, NEVER_S, NEVER_S, NEVER_S, 0.04, 0.5]),
        ),
    ),
    (2, st.tuples(st.just("change"), st.just("put"), weighted((1, KEYS), (1, SOME_PATHS)), WHEN)),
    (3, st.tuples(st.just("change"), st.sampled_from(["replace", "replace", "delete"]), HOT, WHEN)),
    (1, st.tuples(st.just("change"), st.sampled_from(["replace", "delete"]), st.integers(0, 60), WHEN)),
    (1, st.tuples(st.just("fail"), st.integers(1, 2))),
    (1, st.tuples(st.just("refresh"), weighted((1, st.just("")), (1, SOME_PATHS)))),
    (1, st.tuples(st.just("forget"), st.integers(0, 60))),
)


WIDE_WORLD = World(tuple(WIDE), MetadataConfig(TimeToLive(60), TimeToLive(60)), page=1, before_s=0.03)


def test_a_refresh_counts_for_a_directory_that_is_listed_in_the_background() -> None:
    """After a refresh a look-up does not answer with what an unfinished background listing saw before."""
    run(
        WIDE_WORLD,
        ("run", [("probe", "w", 5)], 0.0, NEVER_S),
        ("change", "replace", 0, "now"),
        ("refresh", ""),
        ("run", [("stat", "w/00", 0)], 0.0, NEVER_S),
    )


def test_a_replaced_file_is_stale_once_while_its_directory_is_listed_in_the_background() -> None:
    """What a GET contradicted does not come back from an unfinished background listing."""
    run(
        WIDE_WORLD,
        ("run", [("probe", "w", 5)], 0.0, NEVER_S),
        ("change", "replace", 0, "now"),
        ("run", [("read", "w/00", 1)], 0.0, NEVER_S),
        ("run", [("read", "w/00", 1)], 0.0, NEVER_S),
    )


def test_a_page_that_failed_when_nobody_waited_is_asked_for_again() -> None:
    """A reader that was interrupted leaves no failure to the one that lists the directory later."""
    run(
        World(("t/0",), MetadataConfig(TimeToLive(2), TimeToLive(2)), before_s=0.3),
        ("run", [("opendir", "t", 0)], 0.0, NEVER_S),
        ("fail", 1),
        ("run", [("next", "", 0)], 0.0, 0.04),
        ("run", [("ls", "t", 0)], 0.5, NEVER_S),
    )


def test_a_failure_that_nobody_waited_for_is_not_kept_for_the_same_reader() -> None:
    """A reader whose call ended before its page failed asks for the page again."""
    run(
        World(("a", "a/a"), MetadataConfig(MINIMAL, MINIMAL), page=1, is_ordered=True, before_s=0.03, after_s=0.02),
        ("run", [("opendir", "", 0)], 0.0, NEVER_S),
        ("fail", 2),
        ("run", [("next", "", 0)], 0.0, 0.04),
        ("run", [("stat", 1, 0)], 0.0, NEVER_S),
        ("run", [("next", "", 0)], 0.0, NEVER_S),
    )


# The same examples each time: what chance finds should not fail a change of something else.
@settings(max_examples=400, derandomize=True)
@given(world=WORLDS, steps=st.lists(STEPS, min_size=10, max_size=30))
def test_programs_see_what_the_bucket_had(world: World, steps: list[tuple[object, ...]]) -> None:
    """Whatever happens, nothing shown is older than allowed or invented, and nothing certain is lost."""
    run(world, *steps)
