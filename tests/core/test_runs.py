"""Where two runs meet: the order of a page, and what was delivered already."""

import pytest

from s3mount.core.listing import ListPage
from s3mount.core.runs import Held, Seam
from tests.core.strategies import stat_of


def held(keys: str, prefixes: str = "", token: str | None = "more") -> Held:
    """A page of one-letter keys, and of directories."""
    common = tuple(f"{letter}/" for letter in prefixes)
    return Held.of(ListPage(tuple(stat_of(key) for key in keys), common, token), 0.0, is_ordered=True)


def kept(seam: Seam, page: Held) -> list[str] | None:
    """What is delivered of a page."""
    trimmed = seam.trim(page)
    return None if trimmed is None else [found.key for found in trimmed.objects] + list(trimmed.prefixes)


def overshot(keys: str, start: str, beyond: str | None = None) -> Seam:
    """A seam after a page that went past the next run's start, which is joined now."""
    seam = Seam()
    page = held(keys, token="left")
    assert kept(seam, page) == list(keys)
    seam.deliver(page.items, start)
    seam.join(start, beyond)
    return seam


@pytest.mark.parametrize(
    ("page", "last", "is_after"),
    [
        (held("bcd"), "a", True),
        (held("bcd", "bx"), "a", True),
        (held(""), "a", True),
        (held("bcd"), "b", False),
        (held("c", "b"), "b/", False),
        (held("cbd"), "a", False),
        (held("bb"), "a", False),
        (held("c", "cb"), "a", False),
    ],
)
def test_order_of_a_page(page: Held, last: str, is_after: bool) -> None:  # noqa: FBT001
    """Keys and common prefixes rise, each by themselves, and are all beyond what came before."""
    assert page.is_after(last) is is_after


def test_what_was_delivered_is_trimmed() -> None:
    """The right run begins with what the left one saw of it, and only the rest is delivered."""
    seam = overshot("abcd", "b")
    assert kept(seam, held("cdef", token="right")) == ["e", "f"]
    assert seam.token == "right"
    assert kept(seam, held("gh")) == ["g", "h"]


def test_common_prefixes_are_trimmed() -> None:
    """Keys and common prefixes are trimmed together, in the order of both."""
    seam = Seam()
    page = held("ac", "bd", token="left")
    seam.trim(page)
    seam.deliver(page.items, "b.")
    seam.join("b.", None)
    assert kept(seam, held("ce", "bdf")) == ["e", "f/"]


@pytest.mark.parametrize("right", [held("ce"), held("bcd"), held("d"), held("c", token=None), held("", token=None)])
def test_what_does_not_join(right: Held) -> None:
    """Another key, a key more, a key less, or an end too early: nothing is delivered, the left token holds."""
    seam = overshot("abcd", "b")
    assert kept(seam, right) is None
    assert seam.token == "left"


def test_short_pages_are_compared_one_after_another() -> None:
    """While the right run repeats what was delivered, the listing would go on from the left token."""
    seam = overshot("abcde", "b")
    for page in (held(""), held("c"), held("d")):
        assert kept(seam, page) == []
        assert seam.token == "left"
    assert kept(seam, held("ef", token="right")) == ["f"]
    assert seam.token == "right"


def test_past_several_runs() -> None:
    """A page that went past two starts is compared with the second run, and then with the third."""
    seam = overshot("abcdefg", "b", "d")
    middle = held("cde", token="middle")
    assert kept(seam, middle) == []
    seam.deliver(middle.items, "d")
    seam.join("d", None)
    assert kept(seam, held("efx")) is None
    assert seam.token == "left"
    assert kept(seam, held("efgh", token="right")) == ["h"]


def test_nothing_is_kept_of_the_last_run() -> None:
    """Without a next run nothing delivered is remembered but its end."""
    seam = overshot("abcd", "b")
    page = held("cdef")
    seam.trim(page)
    seam.deliver(page.items, None)
    assert seam.last == "f"
    seam.join("f", None)
    assert kept(seam, held("xyz")) == ["x", "y", "z"]
