"""Hypothesis strategies of the pure layers, and listings made by another way than FakeStore's.

The alphabet of keys is tiny on purpose: collisions of names, markers beside files and names
that sort between `a` and `a/` must come up in every run.
"""

from collections.abc import Collection, Sequence

from hypothesis import strategies as st

from s3mount.core.attrs import ObjectStat
from s3mount.core.listing import ListPage
from s3mount.core.ranges import ByteRange

#: What keys are made of.  "-" and "." sort before "/", "0" after it; U+FF5E and U+1F600 sort the
#: other way round in UTF-16; "é" comes composed and combining, which S3 keeps apart.
TOKENS = ["a", "b", "-", ".", "..", "/", "//", "0", "\x01", "\0", "\\", "\u00e9", "e\u0301", "\uff5e", "\U0001f600"]

keys = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=5).map("".join)
#: Mostly `a` and what can stand around it: where shadowing is decided.
close_keys = st.lists(st.sampled_from(["a", "/", "-", "."]), max_size=4).map(lambda tail: "a" + "".join(tail))
key_sets = st.sets(st.one_of(keys, close_keys), max_size=16)
directory_keys = st.sampled_from(["", "a/", "a//", "\U0001f600/"])

#: Any text an S3 key could be, surrogates excepted.
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@st.composite
def spans(draw: st.DrawFn, size: int, max_length: int | None = None, *, min_length: int = 0) -> ByteRange:
    """A range within an object of `size` bytes."""
    start = draw(st.integers(0, size - min_length))
    longest = size - start if max_length is None else min(size - start, max_length)
    return ByteRange(start, start + draw(st.integers(min_length, longest)))


def utf8(text: str) -> bytes:
    """What S3 sorts by."""
    return text.encode()


def stat_of(key: str) -> ObjectStat:
    """An object; a marker whose key ends in two slashes has content, another has none."""
    size = 5 if key.endswith("//") or not key.endswith("/") else 0
    return ObjectStat(key, f'"{len(key)}"', size, 1_700_000_000)


def rolled_up(key: str, prefix: str) -> str:
    """What a key is listed as under a prefix with the delimiter `/`: itself, or its common prefix."""
    head, slash, _ = key[len(prefix) :].partition("/")
    return prefix + head + slash


def ordered_pages(known: Collection[str], prefix: str, size: int, *, blank: bool = False) -> list[ListPage]:
    """LIST(prefix, delimiter="/") in S3's order, `size` keys and common prefixes a page.

    Args:
        blank: after each page but the last comes an empty one, as S3 allows.
    """
    items = sorted({rolled_up(key, prefix) for key in known if key.startswith(prefix)}, key=utf8)
    batches = [items[at : at + size] for at in range(0, len(items), size)] or [[]]
    if blank:
        batches = [each for batch in batches for each in (batch, [])][:-1]
    return _as_pages(batches, prefix)


def unordered_pages(known: Sequence[str], prefix: str, size: int) -> list[ListPage]:
    """As a directory bucket lists: in any order, and a common prefix may come on several pages."""
    below = [key for key in known if key.startswith(prefix)]
    batches = [below[at : at + size] for at in range(0, len(below), size)] or [[]]
    return _as_pages([list(dict.fromkeys(rolled_up(key, prefix) for key in batch)) for batch in batches], prefix)


def _as_pages(batches: list[list[str]], prefix: str) -> list[ListPage]:
    pages = []
    for number, items in enumerate(batches, 1):
        objects = tuple(stat_of(item) for item in items if "/" not in item[len(prefix) :])
        common = tuple(item for item in items if "/" in item[len(prefix) :])
        pages.append(ListPage(objects, common, f"page {number}" if number < len(batches) else None))
    return pages
