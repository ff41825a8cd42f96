"""A flat listing folded into directories, against the delimited listing of each of them."""

from collections.abc import Collection
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import is_legal_component
from s3mount.core.listing import Entry, HiddenKey, ListingFold
from s3mount.core.tree import TreeDirectory, TreeFold, TreeStatistics
from tests.core.strategies import TOKENS, close_keys, directory_keys, keys, ordered_pages, stat_of, utf8
from tests.support.fake_store import FakeStore

Expected = tuple[list[Entry], set[HiddenKey]]

#: Deeper than a directory's own listing needs: subtrees beside each other, and below hidden prefixes.
deep_keys = st.lists(st.sampled_from(["a/", "b/", "a", *TOKENS]), min_size=1, max_size=8).map("".join)
#: Of legal components only: most of what is drawn above is hidden.
clean_keys = st.lists(st.sampled_from(["a", "b", "a-", "\u00e9"]), min_size=1, max_size=5).map("/".join)
key_sets = st.sets(st.one_of(keys, close_keys, deep_keys, clean_keys), max_size=20)
subtrees = st.tuples(directory_keys, key_sets).map(
    lambda drawn: (drawn[0], {drawn[0] + key for key in drawn[1]} | ({drawn[0]} - {""}))
)
page_sizes = st.lists(st.integers(0, 6), max_size=30)


def directories_of(known: Collection[str], root: str) -> set[str]:
    """The root, and each directory that some key lies in and no illegal component hides."""
    found = {root}
    for key in known:
        *parts, _ = key[len(root) :].split("/")
        for depth, part in enumerate(parts, 1):
            if not is_legal_component(part):
                break
            found.add(root + "/".join(parts[:depth]) + "/")
    return found


def delimited(known: Collection[str], directory: str) -> Expected:
    """What the directory's own listing makes of it."""
    fold = ListingFold(directory)
    entries = [entry for page in ordered_pages(known, directory, 1000) for entry in fold.add(page)]
    return sorted(entries, key=lambda entry: entry.name), set(fold.hidden)


def expected_of(known: Collection[str], root: str, start_after: str) -> dict[str, Expected]:
    """Each directory that lies wholly behind the start, by its own listing."""
    directories = {each for each in directories_of(known, root) if not start_after or utf8(start_after) < utf8(each)}
    return {each: delimited(known, each) for each in directories}


def pages_of(known: Collection[str], root: str, start_after: str, sizes: list[int]) -> list[list[ObjectStat]]:
    """LIST(root, StartAfter=start_after) cut into pages of the sizes given, the last with all that is left."""
    below = [key for key in sorted(known, key=utf8) if key.startswith(root) and utf8(key) > utf8(start_after)]
    pages = []
    for size in sizes:
        pages.append([stat_of(key) for key in below[:size]])
        below = below[size:]
    return [*pages, [stat_of(key) for key in below]]


def fold_pages(fold: TreeFold, pages: list[list[ObjectStat]]) -> list[TreeDirectory]:
    """All that was reported, the invariants checked after every page."""
    reported = []
    for number, page in enumerate(pages, 1):
        reported += fold.add(page, is_last=number == len(pages))
        fold.check_invariants()
    return reported


def assert_reports(reported: list[TreeDirectory], expected: dict[str, Expected]) -> None:
    """Each directory once, with its entries in order of name and its hidden keys each once."""
    assert sorted(each.directory_key for each in reported) == sorted(expected)
    for directory_key, entries, hidden in reported:
        assert (entries, set(hidden)) == expected[directory_key]
        assert len(set(hidden)) == len(hidden)


@settings(max_examples=400)
@given(subtrees, page_sizes)
def test_each_directory_is_what_its_own_listing_makes_of_it(drawn: tuple[str, set[str]], sizes: list[int]) -> None:
    """From the start, however it is cut, every directory is reported once: entries, hidden keys and reasons."""
    root, known = drawn
    fold = TreeFold(root)
    reported = fold_pages(fold, pages_of(known, root, "", sizes))
    assert_reports(reported, expected_of(known, root, ""))
    assert fold.statistics() == TreeStatistics(0, 0)


@settings(max_examples=400)
@given(subtrees, page_sizes, st.data())
def test_a_directory_entered_in_the_middle_is_not_reported(
    drawn: tuple[str, set[str]], sizes: list[int], data: st.DataObject
) -> None:
    """After any key, and after any other text, exactly the directories that lie wholly behind are reported."""
    root, known = drawn
    stems = sorted(key[:end] for key in known for end in range(1, len(key) + 1))
    start_after = data.draw(st.one_of(st.sampled_from([*stems, "b"]), keys.map(lambda key: root + key)))
    reported = fold_pages(TreeFold(root, start_after=start_after), pages_of(known, root, start_after, sizes))
    assert_reports(reported, expected_of(known, root, start_after))


@settings(max_examples=200)
@given(subtrees, st.integers(0, 19))
def test_a_directory_is_reported_as_soon_as_it_is_complete(drawn: tuple[str, set[str]], n_first: int) -> None:
    """Reported is what the last key is behind; inside are the directories it lies in; nothing else is held."""
    root, known = drawn
    first, _ = pages_of(known, root, "", [n_first])
    seen = [found.key for found in first]
    fold = TreeFold(root)
    reported = {each.directory_key for each in fold.add(first, is_last=False)}
    last = seen[-1] if seen else ""
    inside = {each for each in directories_of(seen, root) if last.startswith(each) or each == root}
    assert fold.frontier == last
    assert reported == directories_of(seen, root) - inside
    assert {each for each in directories_of(known, root) if fold.is_inside(each)} == inside
    assert fold.statistics().held == sum(len(delimited(seen, each)[0]) for each in inside)


@settings(max_examples=200)
@given(subtrees, page_sizes, st.randoms(use_true_random=False))
@example(("", {"a/x", "a0", "b"}), [2], Random(0))
def test_out_of_order_nothing_more_is_reported(drawn: tuple[str, set[str]], sizes: list[int], order: Random) -> None:
    """The page with the first key that is not greater than its predecessor reports nothing, nor does any after it."""
    root, known = drawn
    shuffled = order.choices(sorted(known), k=len(known)) if known else []
    pages = []
    for size in [*sizes, len(shuffled)]:
        pages.append([stat_of(key) for key in shuffled[:size]])
        shuffled = shuffled[size:]
    fold = TreeFold(root)
    seen: list[str] = []
    is_broken = False
    for number, page in enumerate(pages, 1):
        seen += [found.key for found in page]
        is_broken = seen != sorted(set(seen), key=utf8)
        reported = fold.add(page, is_last=number == len(pages))
        fold.check_invariants()
        assert fold.is_broken == is_broken
        assert not (is_broken and reported)
    assert fold.is_inside(root) is False


@pytest.mark.parametrize("wrong", ["a/c", "a/b", "a/a/x", "\uff5e", "b", "a", ""])
def test_a_key_that_cannot_come_breaks_the_listing(wrong: str) -> None:
    """A key again, a smaller one, and one outside the root end all reports, and free what was held."""
    fold = TreeFold("a/")
    assert fold.add([stat_of("a/b"), stat_of("a/c")], is_last=False) == []
    assert fold.add([stat_of("a/d/x"), stat_of("a/e"), stat_of(wrong)], is_last=False) == []
    assert fold.is_broken
    assert not fold.is_inside("a/")
    assert fold.statistics() == TreeStatistics(0, 0)
    assert fold.add([stat_of("a/z")], is_last=True) == []


def test_a_key_before_the_start_breaks_the_listing() -> None:
    """A store that does not honour where the listing was to start is not believed."""
    fold = TreeFold("", start_after="b")
    assert fold.add([stat_of("b"), stat_of("c/x")], is_last=True) == []
    assert fold.is_broken


def test_a_key_after_the_end_is_not_taken() -> None:
    """What is added after the last page is not reported as the same directory again."""
    fold = TreeFold("")
    assert [each.directory_key for each in fold.add([stat_of("a/x")], is_last=True)] == ["a/", ""]
    assert fold.add([], is_last=True) == []
    assert fold.add([stat_of("b/x")], is_last=True) == []
    assert fold.is_broken


def test_an_empty_listing_is_an_empty_root() -> None:
    """The last page reports the root even when there was no key, unless the listing started inside or behind it."""
    assert TreeFold("d/").add([], is_last=True) == [TreeDirectory("d/", [], [])]
    assert TreeFold("d/", start_after="c").add([], is_last=True) == [TreeDirectory("d/", [], [])]
    for start_after in ("d/", "d/x", "e"):
        assert TreeFold("d/", start_after=start_after).add([], is_last=True) == []


def test_what_is_not_reported_is_not_held() -> None:
    """Of a directory entered in the middle, and of what lies below an illegal component, no entry is kept."""
    fold = TreeFold("", start_after="d/m")
    fold.add([stat_of(f"d/n{number}") for number in range(9)] + [stat_of("d/o//x"), stat_of("d/o//y")], is_last=False)
    fold.check_invariants()
    assert fold.statistics() == TreeStatistics(open=4, held=0)
    assert fold.is_inside("d/o/")
    assert not any(fold.is_inside(each) for each in ("", "d/", "d/o//"))


def test_a_directory_that_ended_is_forgotten() -> None:
    """The count of what is held does not grow with the directories that were passed, only with their parents."""
    fold = TreeFold("")
    for number in range(50):
        page = [stat_of(f"d{number:02}/{name}") for name in "abcdefgh"]
        reported = fold.add(page, is_last=False)
        assert [each.directory_key for each in reported] == ([f"d{number - 1:02}/"] if number else [])
        assert fold.statistics() == TreeStatistics(open=2, held=number + 1 + len(page))


async def test_a_store_listed_both_ways_shows_the_same() -> None:
    """FakeStore's flat listing, also from the middle, gives each directory as its delimited listing does."""
    store = FakeStore()
    random = Random(3)
    for _ in range(300):
        key = "".join(random.choice(["a", "b", "c/", "d/", "-", "..", "/"]) for _ in range(random.randint(1, 7)))
        store.put(key, b"x" * random.randint(0, 1))
    for start_after in ("", "ac/b", "c/", "c/d/", "d/c/a-"):
        fold = TreeFold("", start_after=start_after)
        token, reported = None, []
        for size in range(1, 1000):
            page = await store.list_page("", delimiter="", token=token, max_keys=size, start_after=start_after)
            reported += fold.add(page.objects, is_last=page.next_token is None)
            token = page.next_token
            if token is None:
                break
        expected = {}
        for directory in directories_of(store.objects, ""):
            if not start_after or start_after < directory:
                own = ListingFold(directory)
                entries = own.add(await store.list_page(directory))
                expected[directory] = (sorted(entries, key=lambda entry: entry.name), set(own.hidden))
        assert len(expected) > 5
        assert_reports(reported, expected)
