"""LIST pages against a model of what a directory should show."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3mount.core.attrs import ObjectStat
from s3mount.core.listing import Entry, ListingFold, ListPage, Verdict, judge
from tests.core.strategies import (
    directory_keys,
    key_sets,
    keys,
    ordered_pages,
    rolled_up,
    stat_of,
    unordered_pages,
    utf8,
)


@dataclass
class Model:
    """What one directory shows and hides, by the rules of docs/semantics.md."""

    directories: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)


def model_of(known: Collection[str], directory: str) -> Model:
    """The directory by the rules, one key after another."""
    model = Model()
    for key in known:
        if not key.startswith(directory):
            continue
        name, slash, _ = key[len(directory) :].partition("/")
        if key == directory:
            model.hidden |= {key} if stat_of(key).size else set()
        elif name in {"", ".", ".."} or "\0" in name:
            model.hidden.add(directory + name + slash)
        elif slash:
            model.directories.add(name)
        else:
            model.files.add(name)
    shadowed = model.files & model.directories
    model.files -= shadowed
    model.hidden |= {directory + name for name in shadowed}
    return model


def fold_all(fold: ListingFold, pages: list[ListPage]) -> list[list[Entry]]:
    """What came out of each page."""
    batches = []
    for page in pages:
        batches.append(fold.add(page))
        fold.check_invariants()
    return batches


def assert_shows(model: Model, directory: str, entries: list[Entry]) -> None:
    """Every name of the model once, a file with its own object, and nothing else."""
    assert Counter(entry.name for entry in entries) == Counter([*model.directories, *model.files])
    for entry in entries:
        assert entry.is_directory == (entry.name in model.directories)
        if not entry.is_directory:
            assert entry.found == stat_of(directory + entry.name)


in_directory = st.tuples(directory_keys, key_sets).map(
    lambda drawn: (drawn[0], {drawn[0] + key for key in drawn[1]} | drawn[1] | ({drawn[0]} - {""}))
)


@settings(max_examples=250)
@given(drawn=in_directory, size=st.integers(1, 7), blank=st.booleans())
def test_an_ordered_listing_of_any_page_size_is_the_model(
    drawn: tuple[str, set[str]], size: int, *, blank: bool
) -> None:
    """Each name once, final and at the same place, each hidden key reported once, whatever the pages."""
    directory, known = drawn
    model = model_of(known, directory)
    fold = ListingFold(directory)
    batches = fold_all(fold, ordered_pages(known, directory, size, blank=blank))
    entries = [entry for batch in batches for entry in batch]
    assert_shows(model, directory, entries)
    assert Counter(hidden.key for hidden in fold.hidden) == Counter(model.hidden)
    assert entries == sorted(entries, key=lambda entry: utf8(entry.name) + b"/")


@settings(max_examples=200)
@given(in_directory, st.integers(1, 7), st.randoms(use_true_random=False))
def test_an_unordered_listing_of_any_page_size_is_the_model(
    drawn: tuple[str, set[str]], size: int, order: Random
) -> None:
    """A listing in any order, with common prefixes on several pages, shows and hides the same."""
    directory, known = drawn
    model = model_of(known, directory)
    fold = ListingFold(directory, is_ordered=False)
    batches = fold_all(fold, unordered_pages(order.sample(sorted(known), len(known)), directory, size))
    assert_shows(model, directory, [entry for batch in batches for entry in batch])
    assert {hidden.key for hidden in fold.hidden} == model.hidden


@settings(max_examples=200)
@given(drawn=in_directory, size=st.integers(1, 7), blank=st.booleans())
def test_what_is_held_back_is_a_prefix_of_the_last_key(drawn: tuple[str, set[str]], size: int, *, blank: bool) -> None:
    """Between two pages of an ordered listing at most as many files are held back as the last key is long."""
    directory, known = drawn
    model = model_of(known, directory)
    fold = ListingFold(directory)
    seen: set[str] = set()
    out: set[str] = set()
    last = ""
    for page in ordered_pages(known, directory, size, blank=blank):
        seen |= {found.key for found in page.objects}
        out |= {directory + entry.name for entry in fold.add(page) if not entry.is_directory}
        last = max([last, *(found.key for found in page.objects), *page.prefixes], key=utf8)
        held = seen - out - model.hidden - {directory}
        assert all(last.startswith(key) for key in held)
        assert len(held) <= len(last)
    assert seen - out <= model.hidden | {directory}


@given(st.integers(1, 7), st.integers(0, 30))
def test_many_neighbours_are_not_held_back(size: int, n_files: int) -> None:
    """Of files that are not prefixes of each other, only the last of a page waits for the next page."""
    pages = ordered_pages({f"file{number:02}" for number in range(n_files)}, "", size)
    fold = ListingFold("")
    n_out = 0
    for number, page in enumerate(pages):
        n_out += len(fold.add(page))
        n_seen = min((number + 1) * size, n_files)
        assert n_out == (n_files if page.next_token is None else n_seen - 1)


@pytest.mark.parametrize("size", range(1, 8))
def test_a_directory_shadows_a_file_that_came_pages_before(size: int) -> None:
    """`a` waits until `a/` had its place behind `a-1` to `a.txt`, and comes out as the directory."""
    known = ["a", "a-1", "a-2", "a-3", "a.", "a..", "a.txt", "a/x", "a0"]
    fold = ListingFold("")
    entries = [entry for batch in fold_all(fold, ordered_pages(known, "", size)) for entry in batch]
    assert Entry("a", None) in entries
    assert [entry.name for entry in entries].count("a") == 1
    assert [hidden.key for hidden in fold.hidden] == ["a"]
    assert "shadowed by the directory 'a/'" in fold.hidden[0].reason


def test_a_blank_page_decides_nothing() -> None:
    """An empty page that is not the last does not let out a file whose directory may still come."""
    fold = ListingFold("")
    assert fold.add(ListPage((stat_of("a"),), (), "1")) == []
    assert fold.add(ListPage((), (), "2")) == []
    assert fold.add(ListPage((), ("a/",), None)) == [Entry("a", None)]


def test_a_file_passes_as_soon_as_its_directory_cannot_come() -> None:
    """`a` is let out by the page that ends behind the place of `a/`, not only by the last."""
    fold = ListingFold("")
    assert fold.add(ListPage((stat_of("a"), stat_of("a.")), (), "1")) == []
    assert fold.add(ListPage((stat_of("a0"),), (), "2")) == [Entry("a.", stat_of("a.")), Entry("a", stat_of("a"))]


def test_names_sort_by_utf8_not_by_utf16() -> None:
    """A name beyond the BMP comes behind U+FF5E, and composed and combining forms are two names."""
    known = ["\U0001f600", "\uff5e", "\u00e9", "e\u0301", "\U0001f600/x"]
    fold = ListingFold("")
    entries = fold.add(ordered_pages(known, "", 1000)[0])
    assert entries == [
        Entry("e\u0301", stat_of("e\u0301")),
        Entry("\u00e9", stat_of("\u00e9")),
        Entry("\uff5e", stat_of("\uff5e")),
        Entry("\U0001f600", None),
    ]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("//", "empty"),
        ("../x", "'..'"),
        ("./x", "'.'"),
        ("a\0/x", "NUL"),
        ("..", "'..'"),
        (".", "'.'"),
        ("\0", "NUL"),
    ],
)
def test_an_illegal_component_is_hidden_with_its_reason(key: str, reason: str) -> None:
    """Each key that cannot be shown says why, named only up to the component that is wrong."""
    fold = ListingFold("")
    assert fold.add(ordered_pages([key], "", 10)[0]) == []
    assert [hidden.key for hidden in fold.hidden] == [rolled_up(key, "")]
    assert reason in fold.hidden[0].reason


@pytest.mark.parametrize(("size", "n_hidden"), [(0, 0), (3, 1)])
def test_a_marker_is_silent_unless_it_has_content(size: int, n_hidden: int) -> None:
    """The marker of the listed directory is not an entry; content nobody can read through it is reported."""
    fold = ListingFold("d/")
    assert fold.add(ListPage((ObjectStat("d/", '"e"', size, 0),), (), None)) == []
    assert len(fold.hidden) == n_hidden


# -- a directory listed by several ranges of keys ----------------------------------------------


def page_of(items: list[str], directory: str, next_token: str | None) -> ListPage:
    """A page of what the listing of a directory rolls keys up to."""
    objects = tuple(stat_of(item) for item in items if "/" not in item[len(directory) :])
    return ListPage(objects, tuple(item for item in items if "/" in item[len(directory) :]), next_token)


@settings(max_examples=250)
@given(
    drawn=in_directory,
    cuts=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=8),
    token=st.sampled_from([None, "more"]),
)
def test_pages_that_overlap_are_the_model(
    drawn: tuple[str, set[str]], cuts: list[tuple[int, int]], token: str | None
) -> None:
    """Pages that begin, and even end, before what was seen give each name once, whatever their tokens say."""
    directory, known = drawn
    model = model_of(known, directory)
    items = sorted({rolled_up(key, directory) for key in known if key.startswith(directory)}, key=utf8)
    fold = ListingFold(directory)
    entries = []
    seen = 0
    for back, length in cuts:
        start = max(0, seen - back)
        entries += fold.add(page_of(items[start : start + length], directory, token), is_last=False)
        fold.check_invariants()
        seen = max(seen, min(start + length, len(items)))
    entries += fold.add(page_of(items[seen:], directory, token), is_last=True)
    assert_shows(model, directory, entries)
    assert {hidden.key for hidden in fold.hidden} == model.hidden


def test_a_page_behind_the_last_key_lets_nothing_out() -> None:
    """After `a-` a page that repeats `a` does not make `a-` final: `a-/` may still come."""
    fold = ListingFold("")
    assert fold.add(ListPage((stat_of("a"), stat_of("a-")), (), "1")) == []
    assert fold.add(ListPage((stat_of("a"),), (), "2")) == []
    assert fold.add(ListPage((), ("a-/", "a/"), None)) == [Entry("a-", None), Entry("a", None)]


def test_a_file_that_came_out_stays_a_file() -> None:
    """A directory written between two overlapping pages does not bring the name out a second time."""
    fold = ListingFold("")
    assert fold.add(ListPage((stat_of("a"), stat_of("b")), (), "1")) == [Entry("a", stat_of("a"))]
    assert fold.add(ListPage((stat_of("b"),), ("a/",), None)) == [Entry("b", stat_of("b"))]
    fold.check_invariants()


@pytest.mark.parametrize("is_ordered", [True, False])
def test_the_caller_may_know_which_page_is_last(*, is_ordered: bool) -> None:
    """The end of one range is not the end of the directory, and a range cut short may be."""
    fold = ListingFold("", is_ordered=is_ordered)
    assert fold.add(ListPage((stat_of("a"),), (), None), is_last=False) == []
    assert fold.add(ListPage((), (), "more"), is_last=True) == [Entry("a", stat_of("a"))]


# -- one LIST as the answer to a lookup -----------------------------------------------------


def judge_by_model(known: Collection[str], path: str) -> tuple[Verdict, ObjectStat | None]:
    """What is under a path, by all keys."""
    found = stat_of(path) if path in known else None
    if any(key.startswith(path + "/") for key in known):
        return Verdict.DIRECTORY, found
    return (Verdict.FILE if found else Verdict.ABSENT), found


@settings(max_examples=250)
@given(key_sets, keys, st.integers(1, 7))
def test_a_verdict_agrees_with_all_keys(known: set[str], stranger: str, size: int) -> None:
    """For every path the first page of its LIST decides as all keys would, or says that it was cut off."""
    paths = {stranger} | {key[:end] for key in known for end in range(1, len(key) + 1)}
    for path in paths - {path for path in paths if path.endswith("/")}:
        page = ordered_pages(known, path, size)[0]
        verdict, found = judge(path, page)
        expected, expected_object = judge_by_model(known, path)
        assert found == expected_object
        is_cut = page.next_token is not None and utf8(page.last_key) < utf8(path + "/")
        assert verdict is (Verdict.CUT_OFF if is_cut else expected)


@given(key_sets, st.integers(1, 7))
def test_listing_and_lookup_agree(known: set[str], size: int) -> None:
    """What a directory lists, a lookup of each name finds as the same kind, and of a hidden file nothing else."""
    fold = ListingFold("")
    for batch in fold_all(fold, ordered_pages(known, "", size)):
        for entry in batch:
            verdict, found = judge(entry.name, ordered_pages(known, entry.name, 1000)[0])
            assert verdict is (Verdict.DIRECTORY if entry.is_directory else Verdict.FILE)
            assert entry.is_directory or found == entry.found


def test_a_blank_page_is_cut_off() -> None:
    """An empty page that is not the last says nothing about a path."""
    assert judge("a", ListPage((), (), "more")) == (Verdict.CUT_OFF, None)
    assert judge("a", ListPage((), (), None)) == (Verdict.ABSENT, None)
