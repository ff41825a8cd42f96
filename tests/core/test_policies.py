"""Sections for paths: which match, which of them counts, and that remembering changes nothing."""

import re
from fnmatch import translate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.epochs import CachePolicy
from s3mount.core.policies import AS_THE_MOUNT, PathPolicies, PathPolicy, Pattern
from s3mount.core.ttl import INDEFINITE, MINIMAL, TimeToLive

SAID = PathPolicy(is_whole=True)


def matches(pattern: str, path: str) -> bool:
    return PathPolicies([(pattern, SAID)]).for_key(path) == SAID


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("data/**", "data", True),
        ("data/**", "data/", True),
        ("data/**", "data/a", True),
        ("data/**", "data/a/b/c", True),
        ("data/**", "database", False),
        ("data/**", "a/data/b", False),
        ("data", "data", True),
        ("data", "data/a", False),
        ("data/*", "data/a", True),
        ("data/*", "data/a/b", False),
        ("data/*", "data", False),
        ("**", "anything/at/all", True),
        ("**", "", True),
        ("**/*.json", "a.json", True),
        ("**/*.json", "x/y/a.json", True),
        ("**/*.json", "x/y/a.jsonl", False),
        ("run-?/**/step-[0-9]*", "run-1/a/b/step-12/", True),
        ("run-?/**/step-[0-9]*", "run-1/step-12", True),
        ("run-?/**/step-[0-9]*", "run-12/step-12", False),
        ("a/**/**/b", "a/b", True),
        ("a.b/**", "axb/c", False),
        ("*", ".hidden", True),
        ("ünï/**", "ünï/x", True),
    ],
)
def test_what_a_pattern_matches(pattern: str, path: str, is_match: bool) -> None:  # noqa: FBT001
    """`**` is any number of components and none, the rest is a shell's within one."""
    assert matches(pattern, path) is is_match


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("", "no path inside the mount"),
        ("/data/**", "write a path inside the mount, as 'data/**'"),
        ("data/", "write 'data/**' for all below it"),
        ("data//x", "a component is empty"),
        ("../data", "a component is empty, . or .."),
        ("./data", "a component is empty, . or .."),
    ],
)
def test_patterns_that_match_nothing(pattern: str, says: str) -> None:
    """What no path of a mount could match is refused, with what to write instead."""
    with pytest.raises(ValueError, match=re.escape(says)):
        Pattern(pattern)


@pytest.mark.parametrize(
    "patterns",
    [
        ("data/train/a.bin", "data/train/*.bin", "data/train/*", "data/train/**", "data/*/a.bin", "data/**", "**"),
        ("data/**", "**/a.bin", "**"),
        ("data/train/*", "data/**/train/a.bin", "**/train/a.bin"),
    ],
)
def test_the_most_specific_section_counts(patterns: tuple[str, ...]) -> None:
    """Of the sections that match a path the most specific one counts, in whatever order they stand."""
    sections = [(pattern, PathPolicy(ttl=TimeToLive(n + 1.0))) for n, pattern in enumerate(patterns)]
    for order in (sections, sections[::-1]):
        left = list(order)
        for expected in sections:
            found = PathPolicies(left).for_key("data/train/a.bin")
            if matches(expected[0], "data/train/a.bin"):
                assert found == expected[1], expected[0]
            left = [each for each in left if each is not expected]


def test_of_equals_the_first_counts() -> None:
    """Two patterns that say as much are told apart by their order."""
    one, other = PathPolicy(is_whole=True), PathPolicy(is_whole=False)
    assert PathPolicies([("a/*x", one), ("a/x*", other)]).for_key("a/xx") == one
    assert PathPolicies([("a/x*", other), ("a/*x", one)]).for_key("a/xx") == other


def test_settings_are_looked_for_one_by_one() -> None:
    """What the most specific section leaves out is what the next one says, and in the end the mount."""
    policies = PathPolicies([
        ("ckpt/**", PathPolicy(ttl=MINIMAL, is_read_only=False)),
        ("ckpt/final/**", PathPolicy(cache=CachePolicy.PIN, is_read_only=True)),
        ("data/**", PathPolicy(ttl=INDEFINITE)),
    ])  # fmt: skip
    assert policies.for_key("ckpt/1") == PathPolicy(ttl=MINIMAL, is_read_only=False)
    assert policies.for_key("ckpt/final/x") == PathPolicy(ttl=MINIMAL, cache=CachePolicy.PIN, is_read_only=True)
    assert policies.for_key("data/1") == PathPolicy(ttl=INDEFINITE)
    assert policies.for_key("other") is AS_THE_MOUNT


def test_paths_are_those_of_the_mount() -> None:
    """Under a prefix a pattern is about what is seen in the mount; the prefix itself is its root."""
    policies = PathPolicies([("data/**", SAID), ("*", PathPolicy(is_read_only=True))], "team/data/")
    assert policies.for_key("team/data/data/x") == SAID
    assert policies.for_key("team/data/x") == PathPolicy(is_read_only=True)
    assert policies.for_key("team/data/x/y") == policies.for_key("team/data/") == policies.for_key("team/data")
    assert policies.for_key("team/data/") == AS_THE_MOUNT


def test_where_all_below_is_one() -> None:
    """A directory is one below where no pattern could tell two names in it apart."""
    policies = PathPolicies([("data/**", SAID), ("logs/*.json", SAID)])
    assert [policies.is_one_below(key) for key in ("", "data/", "data/a/b/", "logs/", "logs/x/", "other/")] == [
        False, True, True, False, True, True,
    ]  # fmt: skip
    assert PathPolicies().is_one_below("") is True


def test_what_is_said_anywhere() -> None:
    """All values of one setting are known, so that room can be made for the longest."""
    policies = PathPolicies([("a", PathPolicy(ttl=MINIMAL)), ("b", PathPolicy(ttl=INDEFINITE)), ("c", SAID)])
    assert set(policies.says_anywhere("ttl")) == {MINIMAL, INDEFINITE}


COMPONENTS = st.sampled_from(["a", "b", "ab", "a*", "*", "?b", "**"])
PATTERNS = st.lists(COMPONENTS, min_size=1, max_size=4).map("/".join)
PATHS = st.lists(st.sampled_from(["a", "b", "ab", "abb"]), min_size=1, max_size=5).map("/".join)


def naive(pattern: list[str], path: list[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return naive(pattern[1:], path) or bool(path and naive(pattern, path[1:]))
    return bool(path) and re.match(translate(pattern[0]), path[0]) is not None and naive(pattern[1:], path[1:])


@given(st.lists(PATTERNS, min_size=1, max_size=4, unique=True), st.lists(PATHS, max_size=8))
def test_what_is_remembered_only_saves_time(patterns: list[str], paths: list[str]) -> None:
    """Whatever was asked for before, a section counts exactly where its pattern, matched the plain way, says so."""
    names = ("ttl", "negative_ttl", "cache", "is_whole")
    policies = PathPolicies([
        (pattern, PathPolicy(**{name: pattern})) for pattern, name in zip(patterns, names, strict=False)
    ])  # fmt: skip
    for path in paths:
        found = policies.for_key(path)
        for pattern, name in zip(patterns, names, strict=False):
            assert (getattr(found, name) is not None) is naive(pattern.split("/"), path.split("/")), (pattern, path)
        policies.check_invariants()
