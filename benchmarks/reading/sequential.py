"""One reader from start to end: without distance, plain and on TLS, and at a distance; and large O_DIRECT reads."""

from collections.abc import Callable

from benchmarks.reading import contestants
from benchmarks.reading.contestants import Contestant, Link, Maker
from benchmarks.reading.ground import Ground
from s3mount.config import DEFAULT_PART_SIZE
from s3mount.units import GIB, KIB, MIB

#: The raw client's GETs at once where nobody says how many: as many as a mount reads ahead, twice.
_RAW = 16
_UNALIGNED = 12_345
_SLICE, _THREADS = 64 * MIB, 4


def _object(ground: Ground) -> tuple[str, int]:
    """The object of these rows, whose end is nowhere."""
    size = ground.scaled(GIB, 128 * MIB) - _UNALIGNED
    return ground.objects.put("big/1g.bin", size), size


def _size(ground: Ground) -> str:
    return "128 MiB" if ground.is_quick else "1 GiB"


def plain(ground: Ground) -> None:
    """No distance; the server itself, whose requests nobody counts."""
    what = f"{_size(ground)} sequential, one reader, plain, no distance"
    _sequential(ground, "plain", what, ground.near(), [*_makers(ground), _local(ground)])
    ground.row("plain", what, "s3mount").at_most("cpu_s_per_gb", 0.9)


def tls(ground: Ground) -> None:
    """nginx ends TLS, on the same processors."""
    what = f"{_size(ground)} sequential, one reader, TLS, no distance"
    _sequential(ground, "tls", what, ground.link(0, "0", is_tls=True), _makers(ground))
    ours = ground.row("tls", what, "s3mount")
    ours.at_most("cpu_s_per_gb", 1.2)
    ours.at_least("of_raw", 0.8)
    if ground.has_peers:
        ours.at_least("of_connector", 1.0)


def far(ground: Ground) -> None:
    """30 ms and 90 MB/s for each connection; the raw client has as many connections as ours had."""
    what = f"{_size(ground)} sequential, one reader, 30 ms, 90 MB/s per connection"

    def at_once() -> int:
        return int(ground.row("far", what, "s3mount").of("gets_at_once"))

    _sequential(ground, "far", what, ground.link(0.03), _makers(ground), at_once)
    ground.row("far", what, "s3mount").at_least("of_raw", 0.9)


def _makers(ground: Ground) -> list[Maker]:
    peers = [contestants.connector, contestants.s3fs_fuse, contestants.fsspec] if ground.has_peers else []
    return [contestants.s3mount(), *peers]


def _local(ground: Ground) -> Maker:
    key, size = _object(ground)
    return contestants.local(ground.objects.copy(ground.directory("local"), [key], size))


def _sequential(
    ground: Ground, part: str, what: str, link: Link, makers: list[Maker], at_once: Callable[[], int] = lambda: _RAW
) -> None:
    key, size = _object(ground)
    names: list[str] = []
    raw = ground.row(part, what, "raw CRT")
    for _ in range(ground.repeats):
        for make in makers:
            with ground.mounted(make, link) as who:
                names.append(who.name)
                ground.measure(ground.row(part, what, who.name), who, link, "streams", who.source, 1, key)
        ground.raw(raw, link, "stream", key, size, at_once())
        raw.note(connections=at_once())
    for name in dict.fromkeys(names):
        row = ground.row(part, what, name)
        row.ratio("of_raw", "mb_per_s", raw)
        if "connector" in names:
            row.ratio("of_connector", "mb_per_s", ground.row(part, what, "connector"))


def direct(ground: Ground) -> None:
    """Threads with preadv of 64 MiB, whose bytes are checked."""
    key, size = _object(ground)
    link = ground.link(0.03)
    what = "O_DIRECT preadv of 64 MiB by 4 threads, 30 ms, 90 MB/s per connection"
    stream, ours = ground.row("direct", what, "s3mount, sequential"), ground.row("direct", what, "s3mount")
    content = ground.objects.piece_file

    def read(who: Contestant) -> None:
        ground.measure(ours, who, link, "direct", who.path, key, _THREADS, _SLICE, content)

    for _ in range(ground.repeats):
        with ground.mounted(contestants.s3mount(), link) as who:
            ground.measure(stream, who, link, "streams", who.source, 1, key)
        with ground.mounted(contestants.s3mount(), link) as who:
            read(who)
        ours.note(gets_of_parts=ours.figures["GET"][-1] * DEFAULT_PART_SIZE / size)
    ours.ratio("of_sequential", "mb_per_s", stream)
    ours.at_most("wrong_slices", 0)
    ours.at_most("largest_get_kib", DEFAULT_PART_SIZE / KIB)
    ours.at_most("gets_of_parts", 1.1)
    ours.at_least("of_sequential", 0.9)
