"""The entries of a whole directory in few bytes.

An `Entry` with its `ObjectStat` is a dozen Python objects, about 420 bytes; a cache holds a million.
Here an entry is a row of columns: 36 bytes of numbers, the UTF-8 of its name, and its ETag, whose
usual form (an MD5 in quotes) is kept as the 16 bytes of the digest.  What few objects differ in
(storage class, restored, form of the ETag) is one number that points into a table of kinds.
The key is not kept: it is the directory's key and the name, and of a symbolic link the suffix.

UTF-8 sorts as code points do, so the names can be searched without being decoded.  Their order is that in which a
listing gives them (`core.listing.place`), whatever the pages it came in.

INVARIANT: what comes out equals what went in, every field of it.
INVARIANT: names are in the order of `core.listing.place`, each once.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple, overload

from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import SEPARATOR, child_key
from s3mount.core.listing import Entry, place
from s3mount.core.symlinks import is_link_key, link_key

#: S3 API Reference, "Object": the ETag of a plain upload.  Anything else is kept as it is.
_is_digest = re.compile('"[0-9a-f]{32}"').fullmatch
_SEPARATOR = SEPARATOR.encode()
#: Stands in the columns of a directory, which has no object.
_NOTHING = ObjectStat("", "", 0, 0)


class _Kind(NamedTuple):
    """What many objects have in common."""

    storage_class: str
    restored: bool
    has_digest: bool
    is_link: bool


_kind = lru_cache(maxsize=256)(_Kind)


@lru_cache(maxsize=256)
def _shared(kinds: tuple[_Kind | None, ...]) -> tuple[_Kind | None, ...]:
    """One tuple for all directories alike."""
    return kinds


class PackedEntries(Sequence[Entry]):
    """The entries of one directory, in the order of a listing; never changes.

    Args:
        directory_key: the prefix they are in, empty or ending in `/`.
        entries: in any order, each name once.

    Raises:
        ValueError: a name comes twice, or an object's key is not the directory's key and the name.
        OverflowError: a size or a time does not fit in 64 bits with a sign.
    """

    __slots__ = (
        "_directory_key", "_etag_bounds", "_etags", "_kind_of", "_kinds", "_mtimes", "_name_bounds", "_names", "_sizes",
    )  # fmt: skip

    def __init__(self, directory_key: str, entries: Iterable[Entry]) -> None:
        ordered = sorted(entries, key=place)
        _check(directory_key, ordered)
        names = [_utf8(entry.name) for entry in ordered]
        stats = [_NOTHING if entry.found is None else entry.found for entry in ordered]
        digests = [_is_digest(found.etag) is not None for found in stats]
        etags = [
            bytes.fromhex(found.etag[1:-1]) if has_digest else _utf8(found.etag)
            for found, has_digest in zip(stats, digests, strict=True)
        ]
        kinds: dict[_Kind | None, int] = {}
        kind_of = [
            kinds.setdefault(None if found is _NOTHING else _kind_of(found, has_digest=has_digest), len(kinds))
            for found, has_digest in zip(stats, digests, strict=True)
        ]
        self._directory_key = directory_key
        self._names = b"".join(names)
        self._etags = b"".join(etags)
        # From lists, whose length is known: an array that grows keeps room to spare.
        self._name_bounds = array("Q", list(accumulate(map(len, names), initial=0)))
        self._etag_bounds = array("Q", list(accumulate(map(len, etags), initial=0)))
        self._sizes = array("q", [found.size for found in stats])
        self._mtimes = array("q", [found.mtime_s for found in stats])
        self._kind_of = array("I", kind_of)
        self._kinds = _shared(tuple(kinds))

    def __len__(self) -> int:
        return len(self._sizes)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        places = range(len(self))[index]
        return self._entry(places) if isinstance(places, int) else [self._entry(at) for at in places]

    def __iter__(self) -> Iterator[Entry]:
        names, etags, kinds = self._names, self._etags, self._kinds
        bounds = zip(pairwise(self._name_bounds), pairwise(self._etag_bounds), strict=True)
        numbers = zip(self._sizes, self._mtimes, self._kind_of, strict=True)
        for ((name, name_end), (etag, etag_end)), (size, mtime_s, kind) in zip(bounds, numbers, strict=True):
            yield self._unpack(names[name:name_end], etags[etag:etag_end], size, mtime_s, kinds[kind])

    def get(self, name: str) -> Entry | None:
        """The entry of a name; unpacks no other."""
        wanted, names, bounds = _utf8(name) + _SEPARATOR, self._names, self._name_bounds
        low, high = 0, len(self)
        while low < high:  # not bisect_left: calling its key takes twice the time
            middle = (low + high) // 2
            if names[bounds[middle] : bounds[middle + 1]] + _SEPARATOR < wanted:
                low = middle + 1
            else:
                high = middle
        return self._entry(low) if low < len(self) and self._raw_name(low) == wanted[:-1] else None

    def raw_names(self) -> list[bytes]:
        """The names as UTF-8, in order."""
        return [self._names[begin:end] for begin, end in pairwise(self._name_bounds)]

    def has_names_of(self, other: "PackedEntries") -> bool:
        """Whether both have the same names."""
        return self._names == other._names and self._name_bounds == other._name_bounds

    def without(self, raw_names: Set[bytes]) -> list[Entry]:
        """The entries but for those of some names; unpacks no other."""
        return [self._entry(at) for at, raw in enumerate(self.raw_names()) if raw not in raw_names]

    def _raw_name(self, at: int) -> bytes:
        return self._names[self._name_bounds[at] : self._name_bounds[at + 1]]

    def _entry(self, at: int) -> Entry:
        etag = self._etags[self._etag_bounds[at] : self._etag_bounds[at + 1]]
        kind = self._kinds[self._kind_of[at]]
        return self._unpack(self._raw_name(at), etag, self._sizes[at], self._mtimes[at], kind)

    def _unpack(self, raw_name: bytes, raw_etag: bytes, size: int, mtime_s: int, kind: _Kind | None) -> Entry:
        name = _text(raw_name)
        if kind is None:
            return Entry(name, None)
        storage_class, restored, has_digest, is_link = kind
        etag = f'"{raw_etag.hex()}"' if has_digest else _text(raw_etag)
        path = child_key(self._directory_key, name)
        key = link_key(path) if is_link else path
        return Entry(name, ObjectStat(key, etag, size, mtime_s, storage_class, restored))

    def check_invariants(self) -> None:
        """Raises ValueError when the columns do not fit together, or the names are not in order."""
        if not len(self._sizes) == len(self._mtimes) == len(self._kind_of):
            raise ValueError("columns of unequal length")
        for bounds, blob in ((self._name_bounds, self._names), (self._etag_bounds, self._etags)):
            if len(bounds) != len(self) + 1 or bounds[0] or bounds[-1] != len(blob):
                raise ValueError("the bounds do not cover the bytes they are of")
        raw_names = [self._raw_name(at) + _SEPARATOR for at in range(len(self))]
        if any(raw_name >= following for raw_name, following in pairwise(raw_names)):
            raise ValueError("the names are not in order, or one is there twice")


def _check(directory_key: str, ordered: list[Entry]) -> None:
    previous = None
    for entry in ordered:
        name, found = entry.name, entry.found
        if name == previous:
            raise ValueError(f"the name {name!r} is twice in {directory_key!r}")
        if found is not None and found.key not in (directory_key + name, link_key(directory_key + name)):
            raise ValueError(f"the object {found.key!r} is not {name!r} in {directory_key!r}")
        previous = name


def _kind_of(found: ObjectStat, *, has_digest: bool) -> _Kind:
    return _kind(found.storage_class, found.restored, has_digest, is_link_key(found.key))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")
