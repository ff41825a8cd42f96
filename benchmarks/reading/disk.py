"""The disk cache in a mount: filling it, against no cache; and reading from it, against the same files on that disk.

Every measurement has a mount of its own, whose kernel pages are none; those of the blocks and of the local
files are dropped before it.  No distance: the server cannot be what is slow.
"""

import os
import time
from pathlib import Path

from benchmarks.disk_cache import forget_pages
from benchmarks.reading import contestants
from benchmarks.reading.contestants import Contestant, Link
from benchmarks.reading.ground import Ground
from s3mount.units import GIB, KIB, MIB

_PART = "disk"
_FILE_BYTES = 115_000
_PROCESSES = (1, 4, 16)
_SECONDS = 4.0
#: What the disk was too slow for is read again.
_PASSES = 3
#: No block was added for so long: what was read is on disk.
_QUIET_S = 2.0


def disk(ground: Ground) -> None:
    """Cold without and with the cache; then, from disk, files, streams and pages."""
    link = ground.link(0, "0")
    keys = [f"disk/{index:05d}.jpg" for index in range(ground.scaled(6000, 200))]
    manifest = ground.objects.put_many(keys, _FILE_BYTES)
    size = ground.scaled(GIB, 128 * MIB)
    streams = [ground.objects.put(f"disk/{index}.bin", size // 4) for index in range(4)]
    whole = ground.objects.put("disk/whole.bin", size)
    directory = ground.directory("cache")
    _fill(ground, link, directory, str(manifest), [whole, *streams])
    copies = ground.directory("local")
    ground.objects.copy(copies, keys, _FILE_BYTES)
    ground.objects.copy(copies, [whole], size)
    ground.objects.copy(copies, streams, size // 4)
    for w in _PROCESSES:
        _compare(
            ground, link, (directory, copies), f"115 kB files, shuffled, {w} processes",
            "samples", manifest, w, ground.seconds(_SECONDS),
        )  # fmt: skip
        ground.row(_PART, f"115 kB files, shuffled, {w} processes", "s3mount").at_least(
            "of_local", 0.5 if w == 1 else 0.35
        )
    for keys_read in ([whole], streams):
        what = f"{size // MIB} MiB sequential, {len(keys_read)} readers"
        _compare(ground, link, (directory, copies), what, "streams", len(keys_read), *keys_read)
        ours = ground.row(_PART, what, "s3mount")
        ours.at_least("of_local", 0.7)
        ours.at_most("cpu_s_per_gb", 0.6)
    what = "pread of 4 KiB, O_DIRECT, 16 in flight"
    _compare(ground, link, (directory, copies), what, "jumps", whole, size, 4 * KIB, 16, ground.seconds(3), "direct")
    ours = ground.row(_PART, what, "s3mount")
    ours.at_least("iops", 8_000)
    ours.at_most("disk_kib_per_read", 32)


def _fill(ground: Ground, link: Link, directory: Path, manifest: str, keys: list[str]) -> None:
    """Cold reads without a cache and with one that is empty."""
    flags = ("--cache", str(directory), "--metadata-ttl", "indefinite")
    reads: list[tuple[str, str, tuple[object, ...]]] = [
        ("cold, one stream", "streams", (1, *keys[:1])),
        ("cold, 4 streams", "streams", (4, *keys[1:])),
        ("cold, 115 kB files, 16 processes", "samples", (manifest, 16, 600)),
    ]
    for what, module, arguments in reads:
        off, on = ground.row(_PART, what, "s3mount without"), ground.row(_PART, what, "s3mount")
        with ground.mounted(contestants.s3mount("--metadata-ttl", "indefinite"), link) as who:
            ground.measure(off, who, link, module, who.source, *arguments)
        with ground.mounted(contestants.s3mount(*flags), link) as who:
            ground.measure(on, who, link, module, who.source, *arguments)
            _settle(directory)
        for _ in range(_PASSES):  # the disk may be slower than the server
            with ground.mounted(contestants.s3mount(*flags), link) as who:
                ground.program(f"readers.{module}", who.source, *arguments)
                _settle(directory)
        on.ratio("of_without", "mb_per_s", off)
        on.at_least("of_without", 0.95, until_cpu_full=True)


def _settle(directory: Path) -> None:
    """Wait until the blocks are on disk."""
    before = -1
    while (now := sum(1 for _ in directory.glob("v1/??/*"))) != before:
        before = now
        time.sleep(_QUIET_S)  # noqa: TID251  another process


def _compare(ground: Ground, link: Link, places: tuple[Path, Path], what: str, module: str, *arguments: object) -> None:
    """The same reads from the cache, through a new mount, and from the local files."""
    directory, copies = places
    ours, local = ground.row(_PART, what, "s3mount"), ground.row(_PART, what, "local")
    flags = ("--cache", str(directory), "--metadata-ttl", "indefinite")
    for _ in range(ground.repeats):
        forget_pages(directory)
        with ground.mounted(contestants.s3mount(*flags), link) as who:
            os.listdir(who.path / "disk")
            before = _read_from_disk(who)
            figures = ground.measure(ours, who, link, module, who.source, *arguments)
            if "reads" in figures:
                ours.note(disk_kib_per_read=(_read_from_disk(who) - before) / KIB / figures["reads"])
        _forget(copies)
        who = Contestant("local", f"path:{copies}")
        ground.measure(local, who, link, module, who.source, *arguments)
    ours.ratio("of_local", "mb_per_s", local)
    for requests in ("GET", "HEAD"):
        ours.at_most(requests, 0)


def _forget(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def _read_from_disk(who: Contestant) -> int:
    """Bytes that the daemon had read from disks so far."""
    pid = who.daemon.pid if who.daemon else 0
    text = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    return int(text.partition("\nread_bytes:")[2].split()[0])
