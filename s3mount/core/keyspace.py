"""Where in a key space a listing may be split: names as numbers, read off the names seen.

S3 tells nothing about the keys ahead, but the names of a data set are counted, hashed or random,
so their characters are the digits of a number.  `KeySpace` reads an alphabet for each position
off a sample: the smallest usual class (digits, hex, letters, base 62) that holds whatever varies
in the field, a field being a stretch of letters and digits.  Digits always count, so that adding
carries from one field to the next (after `n01440764_99999` comes `n01440765_00000`); any other
character that never varies stays as it is, and an ending common to all names is left away.

`Survey` adds the density: how much of that number line one page took, over the pages just below
the place asked about.  Nearly all gaps (between classes, between directories) lie inside pages,
so a few pages measure them where one does not.

A guess is only promised to lie strictly between its bounds.  Whoever lists from it has to be
right wherever it falls.

INVARIANT: `KeySpace.number` never falls as the name rises: distances agree with S3's order.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from string import ascii_lowercase, ascii_uppercase, digits

_ALNUM = frozenset(digits + ascii_uppercase + ascii_lowercase)
#: Smallest first; each in the order of its characters.
_CLASSES = (
    digits,
    digits + "abcdef",
    digits + "ABCDEF",
    ascii_uppercase,
    ascii_lowercase,
    digits + ascii_uppercase,
    digits + ascii_lowercase,
    ascii_uppercase + ascii_lowercase,
    digits + ascii_uppercase + ascii_lowercase,
)
#: Names differ long before, and the numbers stay small; S3's keys have up to 1,024 bytes.
_MAX_POSITIONS = 128

#: Names looked at: enough that every character of base 62 was seen, few enough for a millisecond.
_NAMES_A_PAGE = 8
_MAX_NAMES = 160
#: A new page tells little about the alphabets: they are read again when so many have come.
_PAGES_A_READING = 8
#: Density is the mean of so many pages: a page of photos holds one gap between classes or none.
_DENSITY_PAGES = 10


class KeySpace:
    """Names as numbers of a mixed radix.

    Args:
        names: a sample, without the prefix common to the listing.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._alphabets = list(_alphabets(names))
        self._weights = [1]
        for alphabet in reversed(self._alphabets):
            self._weights.append(self._weights[-1] * len(alphabet))
        self._total = self._weights.pop()
        self._weights.reverse()

    def number(self, name: str) -> int:
        """The place of a name; characters of no alphabet count as the next one that has one."""
        number = 0
        for character, alphabet, weight in zip(name, self._alphabets, self._weights, strict=False):
            at = bisect_left(alphabet, character)
            number += at * weight
            if alphabet[at : at + 1] != character:
                break
        return number

    def name(self, number: int) -> str | None:
        """The least name of a number; None beyond the last."""
        if not 0 <= number < self._total:
            return None
        characters = []
        for alphabet, weight in zip(self._alphabets, self._weights, strict=True):
            at, number = divmod(number, weight)
            characters.append(alphabet[at])
        return "".join(characters)


def _alphabets(names: Collection[str]) -> Iterator[str]:
    """The characters of each position, in their order."""
    ending = _common_ending(names)
    stems = [name[: len(name) - ending][:_MAX_POSITIONS] for name in names]
    seen = [
        {stem[at] for stem in stems if len(stem) > at} for at in range(max((len(stem) for stem in stems), default=0))
    ]
    for _, field in groupby(seen, key=lambda characters: not _ALNUM.isdisjoint(characters)):
        yield from _alphabets_of_field(list(field))


def _alphabets_of_field(field: Sequence[set[str]]) -> Iterator[str]:
    varying = set().union(*(characters for characters in field if len(characters) > 1)) & _ALNUM
    alphabet = next(each for each in _CLASSES if varying <= set(each))
    for characters in field:
        is_fixed = len(characters) == 1 and characters.isdisjoint(alphabet)
        yield "".join(sorted(characters if is_fixed or characters.isdisjoint(_ALNUM) else characters.union(alphabet)))


def _common_ending(names: Collection[str]) -> int:
    """How many characters all names end with; none when they are all the same."""
    backwards = [name[::-1] for name in names]
    low, high = min(backwards, default=""), max(backwards, default="")
    common = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return 0 if low == high else common


class Survey:
    """What the pages seen tell about the keys that were not seen.

    Args:
        prefix, delimiter: of the listing; a guess holds no delimiter after the prefix, so that it
            never lies inside a directory.
    """

    def __init__(self, prefix: str, delimiter: str) -> None:
        self._prefix = prefix
        self._delimiter = delimiter
        self._names: deque[str] = deque(maxlen=_MAX_NAMES)
        self._pages: list[tuple[str, str]] = []  # INVARIANT: in order
        self._space = KeySpace([])
        self._read_at = 0  # pages when `_space` was read
        self._numbers: dict[str, int] = {}

    def add(self, keys: Sequence[str]) -> None:
        """The keys and common prefixes of one page, not empty, in order."""
        step = max(1, len(keys) // _NAMES_A_PAGE)
        self._names.extend(self._name(key) for key in keys[::step])
        insort(self._pages, (keys[0], keys[-1]))

    def pages_between(self, low: str, high: str) -> float:
        """How many pages may lie between two keys; 0 when nothing can be said."""
        self._read()
        page = self._page_at(low)
        return max(0, self._number(high) - self._number(low)) / page if page else 0.0

    def beyond(self, low: str, pages: float, high: str | None) -> str | None:
        """A key about so many pages after `low`.

        Returns:
            Strictly between `low` and `high` (None: no bound), or None: no sensible guess.
        """
        self._read()
        distance = self._page_at(low) * int(pages * 16) // 16
        name = self._space.name(self._number(low) + distance)
        if name is None or (self._delimiter and self._delimiter in name):
            return None
        guess = self._prefix + name
        return guess if low < guess and (high is None or guess < high) else None

    def _name(self, key: str) -> str:
        return key.removeprefix(self._prefix).removesuffix(self._delimiter)

    def _read(self) -> None:
        if not self._read_at or len(self._pages) >= self._read_at + _PAGES_A_READING:
            self._space = KeySpace(self._names)
            self._read_at = len(self._pages)
            self._numbers.clear()

    def _number(self, key: str) -> int:
        if key not in self._numbers:
            self._numbers[key] = self._space.number(self._name(key))
        return self._numbers[key]

    def _page_at(self, low: str) -> int:
        """How much one page takes of the number line, near `low`."""
        stop = max(bisect_right(self._pages, low, key=lambda page: page[0]), min(len(self._pages), _DENSITY_PAGES))
        near = self._pages[max(0, stop - _DENSITY_PAGES) : stop]
        spans = sorted(self._number(last) - self._number(first) for first, last in near)
        if spans and spans[-1] > sum(spans[:-1]) > 0:  # where one kind of names ends and the next begins
            del spans[-1]
        return sum(spans) // max(1, len(spans))

    def check_invariants(self) -> None:
        """Raises ValueError when the pages are out of order."""
        if self._pages != sorted(self._pages):
            raise ValueError("the pages are out of order")
