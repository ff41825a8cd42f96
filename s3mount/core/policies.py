"""What the user says of some paths of the mount, and which of several such sections counts.

A section has a pattern.  It is matched to a path of the mount, without a slash at either end, component by component:

    component    matches
    -----------  ---------------------------------------------------------------------
    **           any number of components, also none: `data/**` is `data` and all below
    *, ?, [abc]  within one component, as in a shell; a leading dot is no exception
    any other    itself

Each setting of a path is that of the most specific section that matches and says it.  Of two patterns the first
component in which they differ decides: text before a component with wildcards, more text in it before less,
any before `**`, and a longer pattern before the one that it begins with.  Of equals the first counts.

Most look-ups are in few directories, so what is left of the patterns below a directory is remembered, and where nothing
below it could make a difference, the answer is.

INVARIANT: what is remembered is at most `_MAX_DIRECTORIES`, and only saves time.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import translate
from functools import reduce

from s3mount.core.epochs import CachePolicy
from s3mount.core.keys import SEPARATOR, is_legal_component, split_key
from s3mount.core.ttl import TimeToLive

#: Directories with what is left of the patterns there, at some 200 bytes each.
_MAX_DIRECTORIES = 10_000
_ANY_DEPTH = "**"
_WILDCARDS = re.compile(r"[*?\[]")
_TEXT, _GLOB, _DEPTH = 2, 1, 0


@dataclass(frozen=True)
class PathPolicy:
    """What holds for a path; None where that is what holds for the mount.

    Attributes:
        ttl, negative_ttl: how long to believe what is there, and that nothing is.
        cache: what the disk cache does with its content.
        is_read_only: nothing is written, made or removed; or else everything may be.
        is_whole: all of a file is fetched at its first read.
    """

    ttl: TimeToLive | None = None
    negative_ttl: TimeToLive | None = None
    cache: CachePolicy | None = None
    is_read_only: bool | None = None
    is_whole: bool | None = None

    def over(self, other: "PathPolicy") -> "PathPolicy":
        """This one, and what the other says where this one says nothing."""
        said = {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}
        return replace(other, **said)


#: Of a path that no section matches.
AS_THE_MOUNT = PathPolicy()


class Pattern:
    """One pattern, compiled.

    Attributes:
        rank: of two, the more specific one has the greater.

    Raises:
        ValueError: no path of a mount could match the text.
    """

    def __init__(self, text: str) -> None:
        parts = text.split(SEPARATOR)
        if text.startswith(SEPARATOR):
            raise ValueError(f"{text!r} begins with a slash; write a path inside the mount, as {text.lstrip('/')!r}")
        if text.endswith(SEPARATOR):
            raise ValueError(f"{text!r} ends with a slash; write {text + _ANY_DEPTH!r} for all below it")
        if not all(map(is_legal_component, parts)):
            raise ValueError(f"{text!r} is no path inside the mount: a component is empty, . or ..")
        self._parts = [None if part == _ANY_DEPTH else re.compile(translate(part)).match for part in parts]
        self.rank = tuple(_rank(part) for part in parts)

    def start(self) -> frozenset[int]:
        """Where a match can be before the first component: how many parts of the pattern are used up."""
        return self._with_skips({0})

    def step(self, places: frozenset[int], component: str) -> frozenset[int]:
        """Where it can be after one more; nowhere when the pattern does not match."""
        reached = set()
        for place in places:
            if place < len(self._parts):
                matches = self._parts[place]
                if matches is None:
                    reached.add(place)
                elif matches(component):
                    reached.add(place + 1)
        return self._with_skips(reached)

    def _with_skips(self, places: set[int]) -> frozenset[int]:
        for place in sorted(places):
            at = place
            while at < len(self._parts) and self._parts[at] is None:
                at += 1
                places.add(at)
        return frozenset(places)

    def is_match(self, places: frozenset[int]) -> bool:
        """Whether it ends there."""
        return len(self._parts) in places

    def last_step(self, places: frozenset[int]) -> Callable[[str], bool]:
        """Says of one more component whether it ends after that: as `step`, for when nothing comes behind."""
        lasts = [self._parts[place] for place in places if not any(self._parts[place + 1 :]) and self._parts[place:]]
        if None in lasts:
            return lambda _: True
        matches = [each for each in lasts if each is not None]
        return lambda component: any([each(component) for each in matches])

    def is_settled(self, places: frozenset[int]) -> bool:
        """Whether all below matches, or nothing."""
        last = len(self._parts) - 1
        return not places or (last in places and self._parts[last] is None)


def _rank(part: str) -> tuple[int, int]:
    if part == _ANY_DEPTH:
        return _DEPTH, 0
    if _WILDCARDS.search(part):
        return _GLOB, len(_WILDCARDS.sub("", part))
    return _TEXT, 0


@dataclass(frozen=True, slots=True)
class _Directory:
    """What is left of each pattern in a directory; and what holds for all below, if that is one thing."""

    places: tuple[frozenset[int], ...]
    last_steps: tuple[Callable[[str], bool], ...]
    settled: PathPolicy | None


class PathPolicies:
    """Answers what holds for a path.

    Args:
        sections: pattern and what it says, as the user ordered them.
        root_key: of the mount, empty or ending in `/`.

    Raises:
        ValueError: a pattern makes no sense.
    """

    def __init__(self, sections: Sequence[tuple[str, PathPolicy]] = (), root_key: str = "") -> None:
        compiled = [(Pattern(text), policy) for text, policy in sections]
        ranked = sorted(compiled, key=lambda each: each[0].rank, reverse=True)
        self._patterns = [pattern for pattern, _ in ranked]
        self._said = [policy for _, policy in ranked]
        self._root_key = root_key
        self._merged: dict[tuple[bool, ...], PathPolicy] = {}
        self._top = self._directory(pattern.start() for pattern in self._patterns)
        self._directories: dict[str, _Directory] = {}

    def for_key(self, key: str) -> PathPolicy:
        """What holds for an object or a directory, with or without the slash at its end."""
        if not self._patterns:
            return AS_THE_MOUNT
        directory_key, name = split_key(key.removesuffix(SEPARATOR))
        if len(directory_key) < len(self._root_key):
            return self._ending_at(self._top.places)  # the mount's root itself
        found = self._find(directory_key)
        if found.settled is not None:
            return found.settled
        return self._of(tuple([is_last(name) for is_last in found.last_steps]))

    def is_one_below(self, directory_key: str) -> bool:
        """Whether the same holds for everything below a directory."""
        return not self._patterns or self._find(directory_key).settled is not None

    def may_be_read_only_below(self, directory_key: str) -> bool:
        """Whether a section that says so could match something below a directory, its name included."""
        places = self._find(directory_key).places if self._patterns else ()
        return any(said.is_read_only and left for said, left in zip(self._said, places, strict=False))

    def says_anywhere(self, name: str) -> list[object]:
        """What all sections say of a field of `PathPolicy`."""
        return [said for each in self._said if (said := getattr(each, name)) is not None]

    def _find(self, directory_key: str) -> _Directory:
        found = self._directories.get(directory_key)
        if found is None:
            found = self._top
            for component in directory_key[len(self._root_key) :].split(SEPARATOR)[:-1]:
                found = self._directory(self._after(found, component))
            if len(self._directories) >= _MAX_DIRECTORIES:
                self._directories.clear()
            self._directories[directory_key] = found
        return found

    def _after(self, directory: _Directory, component: str) -> tuple[frozenset[int], ...]:
        return tuple(
            pattern.step(places, component) for pattern, places in zip(self._patterns, directory.places, strict=True)
        )

    def _directory(self, places: Iterable[frozenset[int]]) -> _Directory:
        left = tuple(zip(self._patterns, places, strict=True))
        places = tuple(each for _, each in left)
        is_settled = all(pattern.is_settled(each) for pattern, each in left)
        last_steps = tuple(pattern.last_step(each) for pattern, each in left)
        return _Directory(places, last_steps, self._ending_at(places) if is_settled else None)

    def _ending_at(self, places: Iterable[frozenset[int]]) -> PathPolicy:
        return self._of(tuple(pattern.is_match(each) for pattern, each in zip(self._patterns, places, strict=True)))

    def _of(self, matches: tuple[bool, ...]) -> PathPolicy:
        """What the sections that match say together; there are few such sets."""
        merged = self._merged.get(matches)
        if merged is None:
            matching = [said for said, is_match in zip(self._said, matches, strict=True) if is_match]
            merged = self._merged[matches] = reduce(PathPolicy.over, matching, AS_THE_MOUNT)
        return merged

    def check_invariants(self) -> None:
        """Raises ValueError when more is remembered than may be."""
        if len(self._directories) > _MAX_DIRECTORIES:
            raise ValueError(f"{len(self._directories)} directories are remembered")
