"""What a training host does to a mount all day, by a program that works a share of the time and checks each byte.

usage: python -m tests.soak.mixed DIRECTORY SEED SHARE STOP BUCKET URL      prints one JSON object

Data sets come from another client and are replaced, so that every few minutes reads are cold; checkpoints are
written, renamed, read and removed; a log is appended to; the tree is walked.  After each piece of work the program
sleeps, so that it works SHARE of the time.  It ends when the file STOP exists.
"""

import itertools
import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

from s3mount.units import KIB, MIB
from tests.soak.readers import PATTERNS, Visit, WrongBytes
from tests.support.content import make_content
from tests.support.servers import make_client

_SIZES = [20 * KIB * (number % 10 + 1) for number in range(24)] + [MIB, 5 * MIB, 12 * MIB]
_CHECKPOINT = 20 * MIB
_KEPT_CHECKPOINTS = 2
_LINES = 200
#: How often each kind of work comes; what is read most, is read most.
_WEIGHTS = {"read": 60, "checkpoint": 4, "sharded": 3, "append": 12, "walk": 4, "replace": 2}


class Work:
    """One program's directory, and what must be in it."""

    def __init__(self, directory: Path, seed: int, bucket: str, url: str) -> None:
        self._root = directory
        self._dice = random.Random(seed)
        self._client = make_client(url)
        self._bucket = bucket
        self._numbers = itertools.count()
        self._data: dict[str, bytes] = {}
        self._generation = ""
        self._checkpoints: list[tuple[Path, bytes]] = []
        self._log = b""
        self.n_bytes = 0
        self.replace()
        for name in ("checkpoints", "logs"):
            (directory / name).mkdir()

    def replace(self) -> None:
        """Another host writes the next data set, then removes the last one."""
        last = {f"{self._generation}/{name}" for name in self._data}
        self._generation = f"data-{next(self._numbers):06}"
        self._data = {
            f"f{number:03}": make_content(f"{self._generation} {number}", size) for number, size in enumerate(_SIZES)
        }
        for name, content in self._data.items():
            self._client.put_object(Bucket=self._bucket, Key=f"{self._generation}/{name}", Body=content)
        if last:
            objects = [{"Key": key} for key in sorted(last)]
            self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": objects})

    def read(self) -> None:
        """A file of the data set in one of the ways of `tests.soak.readers`."""
        read, smallest, largest = PATTERNS[self._dice.choice(sorted(PATTERNS))]
        name = self._dice.choice([name for name, each in self._data.items() if smallest <= len(each) <= largest])
        visit = Visit(self._root / self._generation / name, memoryview(self._data[name]), self._dice)
        read(visit)
        self.n_bytes += visit.n_bytes

    def checkpoint(self) -> None:
        """Written under another name, synced, renamed, read back; the oldest goes."""
        content = make_content(f"checkpoint {next(self._numbers)}", _CHECKPOINT)
        path = self._root / "checkpoints" / f"step_{next(self._numbers):06}.pt"
        with path.with_suffix(".tmp").open("wb") as file:
            for start in range(0, len(content), MIB):
                file.write(content[start : start + MIB])
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".tmp").rename(path)
        self._checkpoints.append((path, content))
        path, content = self._dice.choice(self._checkpoints)
        if path.read_bytes() != content:
            raise WrongBytes(path.name)
        if len(self._checkpoints) > _KEPT_CHECKPOINTS:
            self._checkpoints.pop(0)[0].unlink()
        self.n_bytes += len(content)

    def sharded(self) -> None:
        """A directory of files, renamed when it is whole, read and removed."""
        directory = self._root / "checkpoints" / f"sharded_{next(self._numbers):06}"
        contents = {f"{rank}.distcp": make_content(f"{directory.name} {rank}", 300 * KIB) for rank in range(4)}
        made = directory.with_suffix(".tmp")
        made.mkdir()
        for name, content in contents.items():
            (made / name).write_bytes(content)
        made.rename(directory)
        if {path.name: path.read_bytes() for path in directory.iterdir()} != contents:
            raise WrongBytes(directory.name)
        shutil.rmtree(directory)

    def append(self) -> None:
        """A line more in a log that begins anew after some hundred of them."""
        path = self._root / "logs" / "train.jsonl"
        if self._log.count(b"\n") >= _LINES:
            path.unlink()
            self._log = b""
        line = json.dumps({"step": next(self._numbers), "loss": self._dice.random()}).encode() + b"\n"
        with path.open("ab") as file:
            file.write(line)
        self._log += line
        if path.read_bytes() != self._log:
            raise WrongBytes(path.name)

    def walk(self) -> None:
        """What ls -lR does, and nothing is missing."""
        found = {}
        for directory, _, names in os.walk(self._root):
            found |= {os.path.join(directory, name): os.stat(os.path.join(directory, name)).st_size for name in names}
        wanted = {str(path): len(content) for path, content in self._checkpoints}
        wanted |= {str(self._root / self._generation / name): len(content) for name, content in self._data.items()}
        if not wanted.items() <= found.items():
            raise WrongBytes(f"a walk found {len(found)} names, and not {sorted(wanted.items() - found.items())[:5]}")

    def once(self) -> str:
        (name,) = self._dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        getattr(self, name)()
        return name


def main(directory: str, seed: str, share: str, stop: str, bucket: str, url: str) -> None:
    work = Work(Path(directory), int(seed), bucket, url)
    done: Counter[str] = Counter()
    failures = []
    while not os.path.exists(stop):
        began = time.perf_counter()
        try:
            done[work.once()] += 1
        except (OSError, WrongBytes) as error:
            failures.append(f"{time.strftime('%H:%M:%S')} {error!r}")
        took_s = time.perf_counter() - began
        time.sleep(min(took_s * (1 / float(share) - 1), 10))  # noqa: TID251  a program of its own
    print(json.dumps({"done": done, "bytes": work.n_bytes, "failures": failures}))


if __name__ == "__main__":
    main(*sys.argv[1:])
