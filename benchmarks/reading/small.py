"""Many small files: cold at a distance, by more and more processes; and again, when the kernel has them."""

import os

from benchmarks.bare import DIRECTORY, bare
from benchmarks.reading import contestants
from benchmarks.reading.contestants import Contestant, Maker
from benchmarks.reading.ground import Ground

_BYTES, _DELAY_S = 115_000, 0.02
_PROCESSES = (1, 2, 4, 8, 16, 32, 64)
#: Where those are measured too that are far behind.
_OTHERS_AT = (1, 16)
_SECONDS = 4.0


def _keys(ground: Ground) -> list[str]:
    return [f"{DIRECTORY}/{index:08d}" for index in range(ground.scaled(6000, 200))]


def small(ground: Ground) -> None:
    """Files of 115 kB, shuffled, W processes, 20 ms."""
    manifest, link = ground.objects.put_many(_keys(ground), _BYTES), ground.link(_DELAY_S)
    for w in _PROCESSES if not ground.is_quick else (1, 4):
        what = f"115 kB files, shuffled, W = {w}, 20 ms"
        raw = ground.row("small", what, "raw CRT", W=w)
        for _ in range(ground.repeats):
            ground.raw(raw, link, "samples", manifest, _BYTES, w, ground.seconds(_SECONDS))
            for make in _makers(ground, w):
                with ground.mounted(make, link) as who:
                    _list(who)
                    row = ground.row("small", what, who.name, W=w)
                    seconds = ground.seconds(_SECONDS)
                    ground.measure(row, who, link, "samples", who.source, manifest, w, seconds)
        _judge(ground, what, w)


def _list(who: Contestant) -> None:
    """Data sets look for their files before they read them."""
    if who.daemon:
        os.listdir(who.path / "small")


def _makers(ground: Ground, w: int) -> list[Maker]:
    makers: list[Maker] = [contestants.s3mount()]
    if ground.has_peers:
        makers.append(contestants.connector)
        if w in _OTHERS_AT:
            makers += [contestants.s3fs_fuse, contestants.fsspec]
    if w == max(_OTHERS_AT):
        keys = _keys(ground)
        makers.append(contestants.local(ground.objects.copy(ground.directory("local"), keys, _BYTES)))
    return makers


def _judge(ground: Ground, what: str, w: int) -> None:
    """Against the connector, and against W readers that wait for nothing but the distance and the transfer."""
    alone = ground.row("small", "115 kB files, shuffled, W = 1, 20 ms", "raw CRT")
    bound = w / (alone.of("p50_ms") / 1000)
    ours = ground.row("small", what, "s3mount")
    for value in ours.figures["files_per_s"]:
        ours.note(bound_files_per_s=bound, of_bound=value / bound)
    ours.ratio("of_raw", "files_per_s", ground.row("small", what, "raw CRT"))
    if ground.has_peers:
        ours.ratio("of_connector", "files_per_s", ground.row("small", what, "connector"))
        ours.at_least("of_connector", 1.0)
    ours.at_least("of_bound", 0.9, until_cpu_full=True)
    ours.at_most("cpu_us_per_file", 400)


def epoch(ground: Ground) -> None:
    """The second epoch of files that the kernel has, against a file system that answers from a constant."""
    keys = _keys(ground)
    manifest, link = ground.objects.put_many(keys, _BYTES), ground.link(_DELAY_S)

    def second(who: Contestant) -> None:
        _list(who)
        ground.program("readers.samples", who.source, manifest, 16, 600)
        for w in (1, 4):
            what = f"115 kB files, epoch 2, {w} processes"
            for _ in range(ground.repeats):
                row = ground.row("epoch", what, who.name)
                ground.measure(row, who, link, "samples", who.source, manifest, w, ground.seconds(_SECONDS), "again")

    with bare(ground.directory("bare"), len(keys), _BYTES) as mount:
        second(Contestant(mount.name, f"path:{mount.path}", mount))
    with ground.mounted(contestants.s3mount("--metadata-ttl", "indefinite"), link) as who:
        second(who)
    second(Contestant("local", f"path:{ground.objects.copy(ground.directory('local'), keys, _BYTES)}"))
    for w in (1, 4):
        what = f"115 kB files, epoch 2, {w} processes"
        ours = ground.row("epoch", what, "s3mount")
        ours.ratio("of_bare", "files_per_s", ground.row("epoch", what, "bare pyfuse3"))
        ours.at_least("of_bare", 0.7)
        for requests in ("GET", "HEAD", "LIST"):
            ours.at_most(requests, 0)
