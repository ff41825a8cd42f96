"""The packed pages of a directory: offsets that stay, and a name found on whichever page it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.attrs import ObjectStat
from s3mount.core.entry_pages import EntryPages
from s3mount.core.listing import Entry

names = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=4)


def entry(name: str) -> Entry:
    return Entry(name, ObjectStat("d/" + name, f'"{name}"', len(name), 7))


def read_all(pages: EntryPages, offset: int = 0) -> list[Entry]:
    found: list[Entry] = []
    while some := pages.some_from(offset + len(found)):
        found += some
    return found


@given(st.lists(st.lists(names, max_size=6), max_size=6))
def test_any_pages_give_each_name_once_at_its_place(parts: list[list[str]]) -> None:
    """However the ranges of pages overlap, a name is found where it is, and from each offset the rest follows."""
    seen: set[str] = set()
    pages = EntryPages("d/")
    before: list[Entry] = []
    for part in parts:
        fresh = set(part) - seen
        seen |= fresh
        pages.append(entry(name) for name in fresh)
        now = read_all(pages)
        assert now[: len(before)] == before
        before = now
    pages.check_invariants()
    assert (len(pages), {each.name for each in before}) == (len(seen), seen)
    assert list(pages) == before
    assert [pages.get(name) for name in seen] == [entry(name) for name in seen]
    for absent in {name + "~" for name in seen} - seen:
        assert pages.get(absent) is None
    for offset in range(len(before)):
        assert read_all(pages, offset) == before[offset:]


@st.composite
def paged(draw: st.DrawFn) -> EntryPages:
    """Some names on pages whose ranges may overlap."""
    pages, seen = EntryPages("d/"), set[str]()
    for part in draw(st.lists(st.lists(names, max_size=6), max_size=4)):
        pages.append(entry(name) for name in set(part) - seen)
        seen |= set(part)
    return pages


@given(before=paged(), after=paged(), is_longer=st.booleans())
def test_what_a_newer_listing_lost_is_known(before: EntryPages, after: EntryPages, *, is_longer: bool) -> None:
    """The entries of exactly those names that are not in it, each once, however the names lie on pages."""
    if is_longer:  # the same names, and some more
        lost = {each.name for each in after}
        for part in before.pages():
            after.append(each for each in part if each.name not in lost)
    gone = [each for some in before.lost(after) for each in some]
    assert gone == [each for each in before if after.get(each.name) is None]
    assert list(before.lost(before)) == []
    assert before.has_names_of(before)
    if before.has_names_of(after):
        assert {each.name for each in before} == {each.name for each in after}


def test_nothing_is_at_the_end() -> None:
    """An empty directory, an empty page and an offset at the end or beyond give nothing."""
    pages = EntryPages("d/", [])
    assert (len(pages), pages.some_from(0), pages.get("x")) == (0, [], None)
    pages.append([entry("x")])
    pages.append([])
    assert (pages.some_from(1), pages.some_from(9)) == ([], [])


def test_a_reply_unpacks_no_more_than_it_can_use() -> None:
    """A directory that came as one page of 50,000 is handed out a thousand at a time, not whole for each reply."""
    pages = EntryPages("d/", [entry(f"{n:05}") for n in range(50_000)])
    assert [len(pages.some_from(offset)) for offset in (0, 1, 49_990)] == [1000, 1000, 10]


def test_a_name_on_two_pages_breaks_the_invariant() -> None:
    """The same name on two pages is found out."""
    pages = EntryPages("d/", [entry("x")])
    pages.append([entry("x")])
    with pytest.raises(ValueError, match="twice"):
        pages.check_invariants()
