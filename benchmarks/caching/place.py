"""What the parts share: the data set in the bucket, the same as local files, and a disk cache that has all of it.

A page cache is dropped as Linux drops it (/proc/sys/vm/drop_caches), and every measurement has a mount of its own,
whose kernel pages are none.  So what is read comes from the disk: a row that says otherwise shows GETs.
"""

import os
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.reading import contestants
from benchmarks.reading.contestants import Contestant, Link
from benchmarks.reading.ground import Ground
from benchmarks.reading.table import Row
from s3mount.units import GIB, KIB, MIB

FILE_BYTES = 115_000
PROCESSES = (1, 4, 16)
N_STREAMS = 4
#: A disk may be slower than the server: what it had no time for is read again.
_MOST_PASSES = 6
#: No block was added for so long: what was read is on disk.
_QUIET_S = 1.0


@dataclass(frozen=True)
class Reading:
    """What is read: a module of `benchmarks.readers` and its arguments after the source; all GETs on `link`."""

    what: str
    module: str
    arguments: tuple[object, ...]


class Place:
    """The data of one run, made when first asked for."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.stream_bytes = ground.scaled(GIB, 128 * MIB)

    @cached_property
    def link(self) -> Link:
        """No distance: the server cannot be what is slow; but its requests are counted."""
        return self.ground.link(0, "0")

    @cached_property
    def keys(self) -> list[str]:
        """The small files."""
        return [f"data/{index:05d}.jpg" for index in range(self.ground.scaled(6000, 200))]

    @cached_property
    def manifest(self) -> Path:
        """A file of their keys."""
        return self.ground.objects.put_many(self.keys, FILE_BYTES)

    @cached_property
    def whole(self) -> str:
        """One large object."""
        return self.ground.objects.put("data/whole.bin", self.stream_bytes)

    @cached_property
    def quarters(self) -> list[str]:
        """As many bytes, for several readers."""
        size = self.stream_bytes // N_STREAMS
        return [self.ground.objects.put(f"data/{index}.bin", size) for index in range(N_STREAMS)]

    def files(self, processes: int, seconds: float) -> Reading:
        """The small files, shuffled."""
        return Reading(f"115 kB files, {processes} processes", "samples", (self.manifest, processes, seconds))

    def streams(self, readers: int) -> Reading:
        """The large bytes from start to end."""
        keys = [self.whole] if readers == 1 else self.quarters
        return Reading(f"{self.stream_bytes // MIB} MiB, {readers} readers", "streams", (len(keys), *keys))

    def everything(self) -> list[Reading]:
        """What fills a cache."""
        return [self.files(16, 600), self.streams(1), self.streams(N_STREAMS)]

    @cached_property
    def local(self) -> Contestant:
        """The same files on the file system of the cache."""
        directory = self.ground.directory("local")
        self.ground.objects.copy(directory, self.keys, FILE_BYTES)
        self.ground.objects.copy(directory, [self.whole], self.stream_bytes)
        self.ground.objects.copy(directory, self.quarters, self.stream_bytes // N_STREAMS)
        return Contestant("local", f"path:{directory}")

    @cached_property
    def cache(self) -> Path:
        """A cache directory that has all of it.

        Raises:
            RuntimeError: the disk never had time for all.
        """
        directory = self.ground.directory("cache")
        for _ in range(_MOST_PASSES):
            with self.ground.watched(self.link) as seen, self.ground.mounted(self.ours(directory), self.link) as who:
                for reading in self.everything():
                    self.ground.program(f"readers.{reading.module}", who.source, *reading.arguments)
                    settle(directory)
            if seen[0].gets == 0:
                return directory
        raise RuntimeError(f"after {_MOST_PASSES} passes not all is in the cache")

    def ours(self, directory: Path | None, *flags: str) -> contestants.Maker:
        """A mount with this cache directory, or none."""
        cache = () if directory is None else ("--cache", str(directory))
        return contestants.s3mount(*cache, "--metadata-ttl", "indefinite", *flags)

    def measure(self, row: Row, who: Contestant, reading: Reading) -> None:
        """Nothing is in the kernel's memory before; what a daemon had read from disk counts."""
        drop_pages()
        before = read_from_disk(who)
        figures = self.ground.measure(row, who, self.link, reading.module, who.source, *reading.arguments)
        if who.daemon:
            row.note(disk_of_read=(read_from_disk(who) - before) / figures["bytes"])
            if "reads" in figures:
                row.note(disk_kib_per_read=(read_from_disk(who) - before) / KIB / figures["reads"])


def drop_pages() -> None:
    """Forget what the kernel has of any file."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1", encoding="ascii")


def settle(directory: Path) -> None:
    """Wait until the blocks are on disk."""
    before = -1
    while (now := sum(1 for _ in directory.glob("v1/??/*"))) != before:
        before = now
        time.sleep(_QUIET_S)  # noqa: TID251  another process


def read_from_disk(who: Contestant) -> int:
    """Bytes that the daemon had read from disks so far (proc(5), /proc/PID/io)."""
    if who.daemon is None:
        return 0
    text = Path(f"/proc/{who.daemon.pid}/io").read_text(encoding="ascii")
    return int(text.partition("\nread_bytes:")[2].split()[0])
