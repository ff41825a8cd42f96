"""Programs that tests run as processes of their own: `python readers.py NAME ARGUMENT…`.

They know nothing of s3mount and use the standard library only: files, as any program does.  A
process that forks or that may hang must not be the test's own.
"""

import collections
import concurrent.futures
import contextlib
import errno
import hashlib
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

#: Versioned content changes its stamp every so many bytes: a page of the kernel.
BLOCK = 4096


def start(name: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """Run one of the programs below; its answer is one JSON value on stdout."""
    command = [sys.executable, __file__, name, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def started(name: str, paths: Iterable[Path]) -> Iterator[dict[Path, subprocess.Popen[str]]]:
    """One program for each path; those that still run at the end of the block are killed."""
    programs = {path: start(name, path) for path in paths}
    try:
        yield programs
    finally:
        for program in programs.values():
            with program:
                program.kill()


def answer(process: subprocess.Popen[str], timeout_s: float = 200) -> object:
    """What a started program found; the test fails when it does not end in time."""
    try:
        out, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, f"the reader ended with {process.returncode}"
    return json.loads(out)


def versioned(version: int, size: int) -> bytes:
    """Content that carries its version and its place in every block."""
    blocks = [b"%015d %015d\n" % (version, index) * (BLOCK // 32) for index in range(-(-size // BLOCK))]
    return b"".join(blocks)[:size]


def version_of(content: bytes) -> int | None:
    """The version that content is all of; None when it is of none, that is mixed or misplaced."""
    stamp = content[:15]
    if not stamp.isdigit() or content != versioned(int(stamp), len(content)):
        return None
    return int(stamp)


def follow(path: str, stop: str) -> dict[str, object]:
    """List, open, read whole and close until `stop` exists; tells what each round was.

    Listing makes the kernel know the newest version, so that every round is a race with the next one.
    The sizes that go with the versions are the caller's: the answer has (version, size) pairs.
    """
    rounds: collections.Counter[str] = collections.Counter()
    seen = set()
    while not os.path.exists(stop):
        try:
            os.listdir(os.path.dirname(path))
            with open(path, "rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                content = b"".join(iter(lambda: file.read(192 * 1024), b""))
        except OSError as error:
            rounds[errno.errorcode[error.errno or 0]] += 1
            continue
        version = version_of(content)
        if version is None or len(content) != size:
            rounds["mixed"] += 1
        else:
            rounds["whole"] += 1
            seen.add((version, size))
    return {"rounds": rounds, "seen": sorted(seen)}


def shared_descriptor(path: str) -> list[list[tuple[int, str]]]:
    """Parent and child read one inherited descriptor by turns, until both see the end.

    Answers for each process the (size, SHA-256) of its pieces in the order of reading.
    """
    descriptor = os.open(path, os.O_RDONLY)
    turns = [os.pipe(), os.pipe()]
    result = os.pipe()
    pid = os.fork()
    me, other = (0, 1) if pid else (1, 0)
    if pid:
        os.write(turns[0][1], b".")
    pieces = []
    while os.read(turns[me][0], 1):
        piece = os.read(descriptor, 100_003)
        os.write(turns[other][1], b".")
        pieces.append((len(piece), hashlib.sha256(piece).hexdigest()))
        if not piece:
            break
    if pid == 0:
        with os.fdopen(result[1], "w") as sink:
            json.dump(pieces, sink)
        os._exit(0)
    os.close(result[1])
    with os.fdopen(result[0]) as source:
        child = json.load(source)
    os.waitpid(pid, 0)
    return [pieces, child]


def children_read(path: str, count: str) -> list[str]:
    """So many children open one file at the same moment and read it; answers their SHA-256s."""
    gate, shut = os.pipe()
    result = os.pipe()
    for _ in range(int(count)):
        if os.fork() == 0:
            os.close(shut)
            os.read(gate, 1)  # returns when the parent closes its end
            os.write(result[1], hashlib.sha256(Path(path).read_bytes()).hexdigest().encode() + b"\n")
            os._exit(0)
    os.close(shut)
    os.close(result[1])
    with os.fdopen(result[0]) as source:
        digests = source.read().split()
    for _ in range(int(count)):
        os.wait()
    return digests


def read_at(path: str, offset: str, length: str, how: str = "buffered") -> str:
    """One read of an opened file: the SHA-256 of what came, or the errno's name.

    The kernel asks a second time when a buffered read fails, and never for a direct one.
    """
    buffer = mmap.mmap(-1, int(length))  # aligned, as O_DIRECT wants it
    try:
        descriptor = os.open(path, os.O_RDONLY | (os.O_DIRECT if how == "direct" else 0))
        n_bytes = os.preadv(descriptor, [buffer], int(offset))
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return hashlib.sha256(buffer[:n_bytes]).hexdigest()


def errno_of_stat(path: str) -> str:
    """The errno's name, or none."""
    try:
        os.stat(path)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return ""


def stat_until(stop: str, *paths: str) -> list[int]:
    """Look at all the files until `stop` exists: the sizes they had."""
    sizes = set()
    while not os.path.exists(stop):
        sizes |= {os.stat(path).st_size for path in paths}
    return sorted(sizes)


def read_each_at(offset: str, *paths: str) -> list[int]:
    """One buffered read of a page in each file, all at once; answers how much came."""

    def read(path: str) -> int:
        with open(path, "rb", buffering=0) as file:
            return len(os.pread(file.fileno(), 4096, int(offset)))

    with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
        return list(pool.map(read, paths))


def digests(*paths: str) -> list[str]:
    """SHA-256 of each file, one after the other, read in 1 MiB pieces."""
    found = []
    for path in paths:
        digest = hashlib.sha256()
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
        found.append(digest.hexdigest())
    return found


def digest_mapped(path: str) -> str:
    """SHA-256 of a file through a mapping of all of it."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return hashlib.sha256(mapped).hexdigest()


def digest_directly(path: str) -> str:
    """SHA-256 of a file read by O_DIRECT, 16 MiB at once."""
    digest = hashlib.sha256()
    buffer = mmap.mmap(-1, 16 << 20)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    offset = 0
    while n_bytes := os.preadv(descriptor, [buffer], offset):
        digest.update(memoryview(buffer)[:n_bytes])
        offset += n_bytes
    return digest.hexdigest()


def read_many(directory: str, n_threads: str) -> str:
    """The SHA-256 of all files of a directory in the order of their names, read by threads at once."""
    paths = sorted(Path(directory).iterdir())
    with concurrent.futures.ThreadPoolExecutor(int(n_threads)) as pool:
        return hashlib.sha256(b"".join(pool.map(Path.read_bytes, paths))).hexdigest()


def slices(path: str, tensor: str, n_threads: str) -> list[list[object]]:
    """Threads that each copy their slice of every tensor out of one mapping: offset and SHA-256 of each slice."""
    length, share = int(tensor), int(tensor) // int(n_threads)
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        view = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)

    def copy(which: int) -> list[list[object]]:
        starts = range(which * share, size, length)
        return [[at, hashlib.sha256(memoryview(view)[at : at + share]).hexdigest()] for at in starts]

    with concurrent.futures.ThreadPoolExecutor(int(n_threads)) as pool:
        return [each for found in pool.map(copy, range(int(n_threads))) for each in found]


if __name__ == "__main__":
    _programs = {
        each.__name__: each
        for each in (
            follow,
            shared_descriptor,
            children_read,
            read_at,
            errno_of_stat,
            stat_until,
            read_each_at,
            digests,
            digest_mapped,
            digest_directly,
            read_many,
            slices,
        )
    }
    json.dump(_programs[sys.argv[1]](*sys.argv[2:]), sys.stdout)
