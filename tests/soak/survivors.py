"""Programs that read from a mount whose daemons die, and that must notice nothing but a pause.

usage: python -m tests.soak.survivors reader DIRECTORY ORIGINALS SEED STOP       prints one JSON object
       python -m tests.soak.survivors metronome DIRECTORY STOP                   prints one JSON object

Both end when the file STOP exists.  A reader does what `tests.soak.readers` does, and beside it: it works in a
directory inside the mount, holds files open from its start to its end, and walks the tree.  The metronome asks for
statvfs without a pause, which reaches the daemon each time, and notes how long the slow ones took.
"""

import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

from tests.soak.readers import PATTERNS, Visit, WrongBytes, mapped

_HELD = 4
_SLOW_S = 0.02
_BEAT_S = 0.005


def reader(directory: str, originals: str, seed: str, stop: str) -> dict[str, object]:
    dice = random.Random(int(seed))
    root = Path(directory)
    contents = {path.name: mapped(path) for path in sorted(Path(originals).iterdir())}
    os.chdir(root / "inside")
    large = [name for name, content in contents.items() if len(content) > 4096]
    held = {name: os.open(root / "inside" / name, os.O_RDONLY) for name in dice.sample(large, _HELD)}
    visits: Counter[str] = Counter()
    failures: list[str] = []
    n_bytes = 0
    while not os.path.exists(stop):
        what = dice.choice([*PATTERNS, "walk", "held", "inside"])
        name = "-"
        try:
            if what == "walk":
                walk(root, set(contents))
            elif what == "held":
                name = dice.choice(list(held))
                n_bytes += read_held(held[name], contents[name], dice)
            elif what == "inside":
                look_around(root, contents)
            else:
                read, smallest, largest = PATTERNS[what]
                name = dice.choice([each for each in contents if smallest <= len(contents[each]) <= largest])
                visit = Visit(root / "inside" / name, contents[name], dice)
                read(visit)
                n_bytes += visit.n_bytes
        except (OSError, WrongBytes) as error:
            failures.append(f"{time.strftime('%H:%M:%S')} {what} of {name}: {error!r}")
        visits[what] += 1
    return {"bytes": n_bytes, "visits": visits, "failures": failures}


def walk(root: Path, names: set[str]) -> None:
    """A listing from the root on, with attributes."""
    for directory, _, files in os.walk(root, onerror=_raise):
        found = {entry.name for entry in os.scandir(directory) if entry.stat().st_size >= 0 and entry.is_file()}
        if set(files) != found or (found and found != names):
            raise WrongBytes(f"{directory}: {len(files)} and {len(found)} of {len(names)} names")


def _raise(error: OSError) -> None:
    raise error


def read_held(descriptor: int, expected: memoryview, dice: random.Random) -> int:
    """A descriptor that was opened at the start, by whatever daemon served then."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    start = dice.randrange(len(expected))
    got = os.pread(descriptor, 200_000, start)
    if got != expected[start : start + 200_000]:
        raise WrongBytes(f"{start}: {len(got)} bytes of a held file")
    return len(got)


def look_around(root: Path, contents: dict[str, memoryview]) -> None:
    """The working directory, by relative names."""
    if os.getcwd() != str(root / "inside") or set(os.listdir()) != set(contents):
        raise WrongBytes("the working directory is another")
    for name, content in list(contents.items())[:3]:
        if os.stat(name).st_size != len(content):
            raise WrongBytes(f"{name} has another size")


def metronome(directory: str, stop: str) -> list[tuple[float, float]]:
    slow, failures = [], []
    while not os.path.exists(stop):
        began = time.time()
        try:
            os.statvfs(directory)
        except OSError as error:
            failures.append(repr(error))
        took_s = time.time() - began
        if took_s > _SLOW_S:
            slow.append((began, took_s))
        time.sleep(_BEAT_S)  # noqa: TID251  a program of its own
    if failures:
        raise OSError(failures[:10])
    return slow


if __name__ == "__main__":
    json.dump({"reader": reader, "metronome": metronome}[sys.argv[1]](*sys.argv[2:]), sys.stdout)  # type: ignore[operator]
