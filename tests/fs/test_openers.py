"""Whether the process that opened a file has it open still, by what /proc says of this one."""

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from s3mount.fs.openers import has_open


class File(NamedTuple):
    path: str
    ino: int

    def is_held(self, process_id: int = os.getpid()) -> bool:
        return trio.run(has_open, process_id, self.ino, "file")


@pytest.fixture
def file() -> Iterator[File]:
    """A file of a file system whose inodes have one number everywhere."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        made = Path(directory, "file")
        made.touch()
        yield File(str(made), made.stat().st_ino)


@pytest.mark.parametrize(("flags", "is_held"), [(os.O_WRONLY, True), (os.O_RDWR, True), (os.O_RDONLY, False)])
@pytest.mark.parametrize("others", [0, 100])
def test_who_holds_a_file(file: File, flags: int, others: int, *, is_held: bool) -> None:
    """A file is held by a descriptor that may write it, one of many or few, named or not, until its close."""
    with ExitStack() as stack:
        for _ in range(others):
            stack.enter_context(open(os.devnull, "rb"))
        descriptor = os.open(file.path, flags)
        assert file.is_held() == is_held
        assert not file._replace(ino=file.ino + 1).is_held()
        assert not trio.run(has_open, os.getpid(), file.ino, "other")
        os.unlink(file.path)
        assert file.is_held() == is_held
        os.close(descriptor)
        assert not file.is_held()


@pytest.mark.parametrize("others", [0, 100])
def test_many_descriptors_do_not_hold_up_the_loop(file: File, monkeypatch: pytest.MonkeyPatch, others: int) -> None:
    """The descriptors of a process that has many are looked at in a thread, those of another at once."""
    looked: list[int] = []
    readlink = os.readlink

    def noted(*args: str, **options: int) -> str:
        looked.append(threading.get_ident())
        return readlink(*args, **options)

    monkeypatch.setattr(os, "readlink", noted)
    command = ["python3", "-c", "import os, sys; [os.dup(1) for _ in range(int(sys.argv[1]))]; print(); input()"]
    with subprocess.Popen([*command, str(others)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert not file.is_held(process.pid)
        process.communicate()
    assert len(looked) > others
    assert (set(looked) == {threading.get_ident()}) == (others == 0)


def test_a_process_that_is_not_seen(file: File) -> None:
    """A process that is gone, or was never known, holds nothing."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
        assert not file.is_held(process.pid)
    assert not file.is_held(0)
