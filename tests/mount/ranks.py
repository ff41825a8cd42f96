"""The processes of one job on two hosts: each does what it is told, at the same moment as the others.

usage: python -m tests.mount.ranks RANK DIRECTORY     (calls by stdin, answers by stdout, one JSON array a line)
"""

import ctypes
import glob
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

_LIBC = ctypes.CDLL(None, use_errno=True)


class Calls:
    """What a rank does, by name; what it raises is its answer."""

    def __init__(self, rank: int, directory: str) -> None:
        self._rank = rank
        self._root = Path(directory)

    def content(self, seed: str, rank: int) -> bytes:
        return f"{seed} of rank {rank}\n".encode() * (200 * (rank + 1))

    def checkpoint(self, folder: str) -> None:
        """Directories that all make, and a file of its own by a temporary one."""
        path = self._root / folder / "states"
        path.mkdir(parents=True, exist_ok=True)
        self.replace(folder, f"{folder}/states/rank{self._rank}.pt")

    def replace(self, seed: str, name: str) -> None:
        """A file by way of a temporary one."""
        temporary = self._root / f"{name}.{self._rank}.tmp"
        temporary.write_bytes(self.content(seed, self._rank))
        temporary.replace(self._root / name)

    def overwrite(self, seed: str, name: str) -> None:
        """By one rank of each host: what two of one host write into one file is mixed, as everywhere."""
        if self._rank < 2:
            (self._root / name).write_bytes(self.content(seed, self._rank))

    def exclusive(self, seed: str, name: str) -> None:
        descriptor = os.open(self._root / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.write(descriptor, self.content(seed, self._rank))
        finally:
            os.close(descriptor)

    def commit_by_link(self, seed: str, name: str) -> None:
        temporary = self._root / f"{name}.{self._rank}.tmp"
        temporary.write_bytes(self.content(seed, self._rank))
        try:
            (self._root / name).hardlink_to(temporary)
        finally:
            temporary.unlink()

    def commit_by_rename(self, seed: str, name: str) -> None:
        temporary = self._root / f"{name}.{self._rank}.tmp"
        temporary.write_bytes(self.content(seed, self._rank))
        names = [os.fsencode(each) for each in (temporary, self._root / name)]
        if _LIBC.renameat2(-100, names[0], -100, names[1], 1):
            temporary.unlink()
            raise OSError(ctypes.get_errno(), "renameat2")

    def log_lines(self, name: str, n: int) -> None:
        for line in range(n):
            with (self._root / f"{name}.{self._rank}.log").open("a", encoding="ascii") as file:
                file.write(f"{self._rank} {line}\n")

    def remove(self, name: str, only: int) -> None:
        """One rank removes it while the others look."""
        if self._rank == only:
            shutil.rmtree(self._root / name)
        else:
            for _ in range(20):
                (self._root / name / "states" / "rank0.pt").exists()
                glob.glob(f"{self._root}/{name}/**", recursive=True)

    def remove_all(self, name: str) -> None:
        shutil.rmtree(self._root / name, ignore_errors=True)

    def rename(self, old: str, new: str, only: int) -> None:
        if self._rank == only:
            (self._root / old).rename(self._root / new)

    def read(self, name: str) -> str:
        return (self._root / name).read_bytes().decode()

    def names(self, name: str) -> list[str]:
        return sorted(os.listdir(self._root / name))

    def files(self, name: str) -> list[str]:
        """Below a directory: SeaweedFS lists folders that another host has emptied."""
        paths = (self._root / name).rglob("*")
        return sorted(path.relative_to(self._root).as_posix() for path in paths if path.is_file())


class Answer(NamedTuple):
    """What a call returned, or the error's type and words."""

    value: Any
    error: str = ""


class Ranks:
    """Eight processes, half of them on each mount."""

    N = 8

    def __init__(self, mounts: Sequence[Path]) -> None:
        command = [sys.executable, "-m", "tests.mount.ranks"]
        self._processes = [
            subprocess.Popen(
                [*command, str(rank), str(mounts[rank % len(mounts)])], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for rank in range(self.N)
        ]
        self.together("files", "nothing")  # they have started

    def together(self, name: str, *arguments: object) -> list[Answer]:
        """All ranks make a call, at once."""
        line = json.dumps([name, *arguments]).encode() + b"\n"
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(line)
            process.stdin.flush()
        answers = []
        for process in self._processes:
            assert process.stdout is not None
            answers.append(Answer(*json.loads(process.stdout.readline())))
        return answers

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


def main(rank: str, directory: str) -> None:
    calls = Calls(int(rank), directory)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = Answer(getattr(calls, name)(*arguments))
        except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
            answer = Answer(None, f"{type(error).__name__}: {error}")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
