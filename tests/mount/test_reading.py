"""Every byte through the kernel, by every way that programs read."""

import hashlib
import mmap
import os
import random
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from s3mount.units import GIB, KIB, MIB
from tests.mount import readers
from tests.mount.scripted import ScriptedBucket, content_at
from tests.support.content import make_content
from tests.support.mounts import Mount, mounted
from tests.support.proxy import proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

#: Sizes on both sides of every boundary: (bytes, how many objects of that size).
_TINY = [(size, 44) for size in (0, 1, 2, 4095, 4096, 4097)]
_READ_AHEAD = [(128 * KIB + delta, 8) for delta in (-1, 0, 1)]
_SMALL_FILE = [(MIB + delta, 4) for delta in (-1, 0, 1)]
_PARTS = [(size, 1) for part in (5 * MIB, 8 * MIB) for size in (part - 1, part, part + 1, 3 * part + 7)]
_LARGE = "0024-25165831"  # 3 default parts and 7 bytes
_LARGE_5 = "0024-15728647"  # 3 parts of 5 MiB and 7 bytes

_PART_SIZES = pytest.mark.parametrize("flags", [("--part-size", "5MiB"), ()], ids=["part 5 MiB", "default part"])


@dataclass(frozen=True)
class Data:
    """A bucket and what was put into it."""

    bucket: str
    contents: dict[str, bytes]
    url: str

    def mounted(self, work: Path, *flags: str):  # type: ignore[no-untyped-def]
        return mounted(self.bucket, work, *flags, url=self.url)


@pytest.fixture(scope="module")
def data(weed: Server) -> Data:
    """More than 300 objects of boundary sizes, each with content of its own."""
    bucket = weed.make_bucket()
    contents = {}
    for size, count in _TINY + _READ_AHEAD + _SMALL_FILE + _PARTS:
        for number in range(count):
            key = f"{number:04}-{size}" if count > 1 else f"0024-{size}"
            contents[key] = make_content(key, size)
    assert len(contents) >= 300
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda item: weed.client.put_object(Bucket=bucket, Key=item[0], Body=item[1]), contents.items()))
    return Data(bucket, contents, weed.url)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _differing(directory: Path, contents: dict[str, bytes]) -> list[str]:
    return [key for key, content in contents.items() if (directory / key).read_bytes() != content]


@_PART_SIZES
def test_every_size_is_read_by_python(data: Data, work: Path, flags: tuple[str, ...]) -> None:
    """Each of more than 300 objects around every boundary is byte for byte what was stored."""
    with data.mounted(work, *flags) as mount:
        assert {entry.name for entry in os.scandir(mount.path)} == set(data.contents)
        assert _differing(mount.path, data.contents) == []
        assert _differing(mount.path, data.contents) == []  # and again, from the page cache
        assert mount.warnings() == []


def test_every_size_is_copied_by_cp(data: Data, work: Path) -> None:
    """`cp -r` of the mount is byte for byte what was stored."""
    with data.mounted(work, "--part-size", "5MiB") as mount:
        subprocess.run(["cp", "-r", mount.path, work / "copy"], check=True)
        assert mount.warnings() == []
    assert len(list((work / "copy").iterdir())) == len(data.contents)
    assert _differing(work / "copy", data.contents) == []


def test_every_size_is_read_by_cat(data: Data, work: Path) -> None:
    """`cat` of every file, one after the other, is what was stored, one after the other."""
    keys = sorted(data.contents)
    with data.mounted(work) as mount:
        run = subprocess.run(["cat", *keys], cwd=mount.path, capture_output=True, check=True)
    assert _sha256(run.stdout) == _sha256(b"".join(data.contents[key] for key in keys))


@pytest.mark.parametrize("key", [_LARGE_5, "0000-4097", f"0000-{MIB + 1}"])
def test_random_preads(data: Data, work: Path, key: str) -> None:
    """Reads at random offsets, of random lengths, also over the end, give the bytes at that offset."""
    content = data.contents[key]
    choose = random.Random(7)
    with data.mounted(work, "--part-size", "5MiB") as mount:
        descriptor = os.open(mount.path / key, os.O_RDONLY)
        try:
            for _ in range(150):
                offset = choose.randrange(len(content) + 10)
                length = choose.choice([1, 100, 4096, 100_000, 1_000_000])
                assert os.pread(descriptor, length, offset) == content[offset : offset + length]
            assert os.pread(descriptor, 1, len(content)) == b""
        finally:
            os.close(descriptor)
        assert mount.warnings() == []


@pytest.mark.parametrize("block", ["1M", "128K", "4K"])
def test_direct_reads(data: Data, work: Path, block: str) -> None:
    """O_DIRECT readers get every byte, also the tail that fills no block."""
    key = _LARGE_5 if block != "4K" else f"0000-{MIB + 1}"
    with data.mounted(work, "--part-size", "5MiB") as mount:
        command = ["dd", f"if={mount.path / key}", f"bs={block}", "iflag=direct", "status=none"]
        assert subprocess.run(command, capture_output=True, check=True).stdout == data.contents[key]
        assert mount.warnings() == []


def test_shared_mapping(data: Data, work: Path) -> None:
    """mmap(MAP_SHARED) shows the file, touched in any order."""
    content = data.contents[_LARGE]
    with data.mounted(work) as mount, (mount.path / _LARGE).open("rb") as file:
        with mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as view:
            for offset in random.Random(3).sample(range(len(content) - 64), 100):
                assert view[offset : offset + 64] == content[offset : offset + 64]
            assert view[:] == content
        assert mount.warnings() == []


def test_private_mapping(data: Data, work: Path) -> None:
    """A private mapping can be written, and neither the file nor other mappings change."""
    content = data.contents[_LARGE]
    with data.mounted(work) as mount, (mount.path / _LARGE).open("rb") as file:
        with mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as view:
            view[5000:5004] = b"mine"
            assert view[5000:5004] == b"mine"
            assert view[:5000] == content[:5000]
            assert view[5004:] == content[5004:]
        assert file.read() == content


def test_eight_processes_read_one_file(data: Data, work: Path) -> None:
    """Eight processes that read one file at the same time all get it whole."""
    with data.mounted(work) as mount:
        programs = [readers.start("digests", mount.path / _LARGE) for _ in range(8)]
        assert [readers.answer(program) for program in programs] == [[_sha256(data.contents[_LARGE])]] * 8
        assert mount.warnings() == []


@_PART_SIZES
def test_eight_processes_read_different_files(data: Data, work: Path, flags: tuple[str, ...]) -> None:
    """Eight processes that read all files at the same time, each in an order of its own, get each whole."""
    keys = [key for key in data.contents if not key.startswith("00") or key.startswith(("0000", "0001", "0024"))]
    with data.mounted(work, *flags) as mount:
        orders = [random.Random(number).sample(keys, len(keys)) for number in range(8)]
        programs = [readers.start("digests", *(mount.path / key for key in order)) for order in orders]
        for order, program in zip(orders, programs, strict=True):
            assert readers.answer(program) == [_sha256(data.contents[key]) for key in order]
        assert mount.warnings() == []


def test_fork_shares_the_descriptor(data: Data, work: Path) -> None:
    """A parent and its child that read one inherited descriptor by turns get the file's pieces in order."""
    content = data.contents[_LARGE]
    with data.mounted(work) as mount:
        parent, child = readers.answer(readers.start("shared_descriptor", mount.path / _LARGE))  # type: ignore[misc]
    pieces = [(len(content[at : at + 100_003]), _sha256(content[at : at + 100_003])) for at in _steps(len(content))]
    woven = [tuple((parent, child)[turn % 2][turn // 2]) for turn in range(len(pieces))]
    assert woven == pieces
    assert len(parent) > 100
    assert len(child) > 100


def _steps(size: int) -> range:
    return range(0, size, 100_003)


def test_copies_within_the_kernel(data: Data, work: Path) -> None:
    """sendfile, copy_file_range where the kernel offers it, and shutil.copyfile give the same bytes."""
    content = data.contents[_LARGE_5]
    with data.mounted(work) as mount:
        source = mount.path / _LARGE_5
        shutil.copyfile(source, work / "copyfile")
        with source.open("rb") as file, (work / "sendfile").open("wb") as sink:
            sent = 0
            while n_bytes := os.sendfile(sink.fileno(), file.fileno(), sent, 1 << 20):
                sent += n_bytes
        subprocess.run(["cp", "--reflink=never", "--sparse=never", source, work / "cp"], check=True)
        assert mount.warnings() == []
    for name in ("copyfile", "sendfile", "cp"):
        assert (work / name).read_bytes() == content


def test_dd_while_another_process_reads(data: Data, work: Path) -> None:
    """A buffered dd and a direct dd of one file at the same time as a reader all give its bytes."""
    content = data.contents[_LARGE]
    with data.mounted(work) as mount:
        reader = readers.start("digests", *[mount.path / _LARGE] * 3)
        commands = [
            ["dd", f"if={mount.path / _LARGE}", f"of={work / name}", "bs=256K", "status=none", *flags]
            for name, flags in (("buffered", []), ("direct", ["iflag=direct"]))
        ]
        running = [subprocess.Popen(command) for command in commands]
        assert [process.wait(200) for process in running] == [0, 0]
        assert readers.answer(reader) == [_sha256(content)] * 3
    assert (work / "buffered").read_bytes() == content
    assert (work / "direct").read_bytes() == content


def test_a_file_of_50_gib(weed: Server, work: Path) -> None:
    """A file of 50 GiB has its size and its bytes at every power of two, mapped and read, and at its end."""
    size = 50 * GIB + 7
    bucket = weed.make_bucket()
    with proxy(weed.url) as front:
        front.decide = ScriptedBucket({"huge": size}).decide
        with mounted(bucket, work, url=front.url) as mount, (mount.path / "huge").open("rb", buffering=0) as file:
            assert os.fstat(file.fileno()).st_size == size
            with mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as view:
                for offset in (0, *(1 << power for power in range(12, 36)), size - 5000):
                    wanted = content_at("huge", offset - 100 if offset else 0, min(offset + 9000, size))
                    start = offset - 100 if offset else 0
                    assert os.pread(file.fileno(), len(wanted), start) == wanted
                    assert view[start : start + len(wanted)] == wanted
            assert os.pread(file.fileno(), 100, size - 7) == content_at("huge", size - 7, size)
            _assert_frugal(mount, front.count("GET", is_list=False))


def _assert_frugal(mount: Mount, n_gets: int) -> None:
    """26 random places cost a few small GETs each, not parts."""
    assert n_gets < 26 * 4
    assert mount.warnings() == []
