"""What the disk cache gives, against the same files on the same disk."""

import os

from benchmarks.bare import FILE, bare_pages
from benchmarks.caching.place import N_STREAMS, PROCESSES, Place, Reading
from benchmarks.reading.contestants import Contestant
from benchmarks.reading.table import Row
from s3mount.units import KIB

_SECONDS = 3.0
_IN_FLIGHT = 16
#: Reads a second of a bare pyfuse3 with trio's threads on an idle machine, when the aim of 8,000 was set.
_BARE_THEN = 10_700


def files(place: Place) -> None:
    """115 kB files, epoch 2 from disk."""
    for processes in PROCESSES:
        ours = _against_local(place, "files", place.files(processes, place.ground.seconds(_SECONDS)))
        ours.at_least("of_local", 0.5 if processes == 1 else 0.35)


def streams(place: Place) -> None:
    """Large objects from start to end; and cold from the server, which the cache must not be slower than."""
    for readers in (1, N_STREAMS):
        reading = place.streams(readers)
        ours = _against_local(place, "streams", reading)
        cold = place.ground.row("streams", reading.what, "s3mount, no cache")
        for _ in range(place.ground.repeats):
            with place.ground.mounted(place.ours(None), place.link) as who:
                os.listdir(who.path / "data")
                place.measure(cold, who, reading)
        ours.ratio("of_cold", "mb_per_s", cold)
        ours.at_least("of_local", 0.7)
        ours.at_least("of_cold", 1.0)
        ours.at_most("cpu_s_per_gb", 0.6)


def random(place: Place) -> None:
    """preads of 4 KiB, 16 in flight, past the pages of the mount; beside a bare file system with trio's threads."""
    ground = place.ground
    seconds = ground.seconds(_SECONDS)
    arguments: tuple[object, ...] = (place.whole, place.stream_bytes, 4 * KIB, _IN_FLIGHT, seconds, "direct")
    reading = Reading(f"pread of 4 KiB, O_DIRECT, {_IN_FLIGHT} in flight", "jumps", arguments)
    ours = _against_local(place, "random", reading)
    bare = ground.row("random", reading.what, "bare pyfuse3")
    for _ in range(ground.repeats):
        with bare_pages(ground.directory("bare"), place.local.path / place.whole) as mount:
            who = Contestant(mount.name, f"path:{mount.path}", mount)
            place.measure(bare, who, Reading(reading.what, reading.module, (FILE, *arguments[1:])))
    ours.ratio("of_bare", "iops", bare)
    ours.at_least("iops", 8_000)
    ours.at_least("of_bare", 8_000 / _BARE_THEN)
    ours.at_most("disk_kib_per_read", 32)


def _against_local(place: Place, part: str, reading: Reading) -> Row:
    """The same reads from the cache, through a new mount, and from the local files, in turns."""
    ours = place.ground.row(part, reading.what, "s3mount")
    local = place.ground.row(part, reading.what, "local")
    for _ in range(place.ground.repeats):
        with place.ground.mounted(place.ours(place.cache), place.link) as who:
            os.listdir(who.path / "data")  # names are no part of it
            place.measure(ours, who, reading)
        place.measure(local, place.local, reading)
    ours.ratio("of_local", "mb_per_s", local)
    for requests in ("GET", "HEAD"):
        ours.at_most(requests, 0)
    return ours
