"""Writing one file of the cache, past the kernel's memory and through it."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from s3mount.cache.filling import FileFiller
from s3mount.units import KIB, MIB

HEADER = bytes(range(256)) * 16


def new_file(work: Path) -> int:
    return os.open(work / "file", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)


@pytest.mark.parametrize("size", [1, 64 * KIB, MIB - 1, MIB, MIB + 1, 3 * MIB + 4095, 8 * MIB])
@pytest.mark.parametrize("refused", [None, "F_SETFL", "pwrite"])
def test_a_file_has_what_was_given(work: Path, monkeypatch: pytest.MonkeyPatch, size: int, refused: str | None) -> None:
    """A file has header and content and ends there, whatever its size, also where the kernel refuses O_DIRECT."""
    real_fcntl = fcntl.fcntl

    def no_direct(fd: int, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETFL and argument & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_fcntl(fd, command, argument)

    def no_pwrite(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    if refused == "F_SETFL":
        monkeypatch.setattr(fcntl, "fcntl", no_direct)
    elif refused == "pwrite":
        monkeypatch.setattr(os, "pwrite", no_pwrite)
    filler = FileFiller()
    content = os.urandom(size)
    for _ in range(2):
        fd = new_file(work)
        filler.fill(fd, HEADER, memoryview(content))
        os.close(fd)
        assert (work / "file").read_bytes() == HEADER + content


def test_large_files_go_past_the_kernels_memory(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large block not a byte is written through the page cache, of a small one all."""
    fd = new_file(work)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", lambda *_: 0)
        FileFiller().fill(fd, HEADER, memoryview(bytes(MIB)))
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT
        with pytest.raises(OSError, match="No space"):
            FileFiller().fill(fd, HEADER, memoryview(bytes(MIB - 1)))
    os.close(fd)


def test_a_short_write_is_a_full_disk(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel took only in part is an error, so the file never counts as a block."""
    fd = new_file(work)
    monkeypatch.setattr(os, "pwrite", lambda *_: 4096)
    with pytest.raises(OSError, match="No space"):
        FileFiller().fill(fd, HEADER, memoryview(bytes(MIB)))
    os.close(fd)
