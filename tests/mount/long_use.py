"""A program that keeps files, a mapping, directories and its working directory in use, in every way that takes long.

usage: python -m tests.mount.long_use ROOT BEGUN

It creates the file BEGUN when everything is open, and goes on until stdin ends and it did each thing once.  Then it
says, as JSON, how often it did, and what was wrong.  The kernel is made to drop what it read, so that it asks again.
"""

import itertools
import json
import mmap
import os
import random
import select
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.mount.readers import versioned

SIZES = {"sequential": 20 << 20, "random": 12 << 20, "mapped": (5 << 20) + 7}
#: Names of a directory that takes many readdirs.
MANY = [f"{number:03}-" + "x" * 200 for number in range(200)]
TREE = [f"{a}/{b}/file" for a in range(3) for b in range(3)]


def contents() -> dict[str, bytes]:
    """What the bucket must have."""
    files = {name: versioned(1, size) for name, size in SIZES.items()}
    return files | {f"many/{each}": b"" for each in MANY} | {f"tree/{each}": each.encode() for each in TREE}


class User:
    """Everything it uses is opened once."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        os.chdir(f"{root}/tree")
        self.expected = {name: versioned(1, size) for name, size in SIZES.items()}
        self.files = {name: os.open(f"{root}/{name}", os.O_RDONLY) for name in SIZES}
        with open(f"{root}/mapped", "rb") as file:
            self.mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.position = 0
        self.entries: Iterator[os.DirEntry[str]] = os.scandir(f"{root}/many")
        self.names: list[str] = []

    def check(self, name: str, at: int, content: bytes) -> None:
        self.done[name] += 1
        if content != self.expected[name][at : at + max(1, len(content))]:
            self.wrong.append(f"{name} at {at}")

    def read_on(self) -> None:
        piece = os.read(self.files["sequential"], 300_000)
        self.check("sequential", self.position, piece)
        self.position += len(piece)
        if os.fstat(self.files["sequential"]).st_size != SIZES["sequential"]:
            self.wrong.append("the size of an open file")
        if not piece:
            self.position = os.lseek(self.files["sequential"], 0, os.SEEK_SET)

    def jump(self) -> None:
        at = random.randrange(SIZES["random"])
        self.check("random", at, os.pread(self.files["random"], 5000, at))

    def touch(self) -> None:
        at = random.randrange(SIZES["mapped"])
        self.check("mapped", at, self.mapped[at : at + 5000])

    def list_some(self) -> None:
        """Fifty entries of a directory that stays open for long."""
        some = [entry.name for entry in itertools.islice(self.entries, 50)]
        self.names += some
        if not some:
            if sorted(self.names) != MANY:
                self.wrong.append(f"{len(self.names)} entries with {len(set(self.names))} names")
            self.entries, self.names = os.scandir(f"{self.root}/many"), []
            self.done["listing"] += 1

    def walk(self) -> None:
        """Below the working directory, of which the kernel says nothing but its number."""
        found = [os.path.relpath(f"{above}/{name}") for above, _, names in os.walk(".") for name in names]
        if sorted(found) != TREE:
            self.wrong.append(f"the walk found {found}")
        each = random.choice(TREE)
        if Path(each).read_text() != each or Path(self.root, "tree", each).read_text() != each:
            self.wrong.append(each)
        self.done["walk"] += 1

    def drop(self) -> None:
        self.mapped.madvise(mmap.MADV_DONTNEED)
        for descriptor in self.files.values():
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def run(self) -> None:
        while len(self.done) < len(SIZES) + 2 or not select.select([sys.stdin], [], [], 0)[0]:
            for step in (self.read_on, self.jump, self.touch, self.list_some, self.walk, self.drop):
                try:
                    step()
                except OSError as error:
                    self.wrong.append(f"{step.__name__}: {error}")


if __name__ == "__main__":
    _user = User(sys.argv[1])
    Path(sys.argv[2]).touch()
    _user.run()
    json.dump({"done": _user.done, "wrong": _user.wrong[:20]}, sys.stdout)
