"""What programs do to a directory, each in a process of its own, so that a benchmark can give up on it.

usage: python -m benchmarks.walks first|walk DIRECTORY     prints one JSON object
       python -m benchmarks.walks stat DIRECTORY MOST
"""

import json
import os
import sys
import time
from collections.abc import Callable


def first(directory: str) -> dict[str, float]:
    """Until a program has the first name."""
    started = time.perf_counter()
    with os.scandir(directory) as entries:
        next(entries)
        return {"seconds": time.perf_counter() - started}


def walk(directory: str) -> dict[str, float]:
    """os.walk, as a data loader finds its samples."""
    started = time.perf_counter()
    files = sum(len(names) for _, _, names in os.walk(directory))
    return {"seconds": time.perf_counter() - started, "files": files}


def stat(directory: str, most: str) -> dict[str, float]:
    """os.stat of names, evenly spread; they are read before the clock starts, as a program has them from somewhere."""
    names = os.listdir(directory)
    paths = [os.path.join(directory, name) for name in names[:: max(1, len(names) // int(most))]]
    started = time.perf_counter()
    for path in paths:
        os.stat(path)
    return {"seconds": time.perf_counter() - started, "files": len(paths)}


_PROGRAMS: dict[str, Callable[..., dict[str, float]]] = {"first": first, "walk": walk, "stat": stat}

if __name__ == "__main__":
    print(json.dumps(_PROGRAMS[sys.argv[1]](*sys.argv[2:])))
