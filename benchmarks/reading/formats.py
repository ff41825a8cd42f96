"""Training files of several formats, read by the libraries that read them, at a distance."""

from pathlib import Path

from benchmarks.reading import contestants
from benchmarks.reading.contestants import Link, Maker
from benchmarks.reading.ground import Ground
from s3mount.config import DEFAULT_PART_SIZE
from s3mount.units import GIB, MIB

_SAMPLE = 32_000
_READERS = 4
_RANKS, _THREADS = 8, 4


def shards(ground: Ground) -> None:
    """Shards with an index, shuffled inside each: two small preads a sample; and the same shards sequentially."""
    size, n = ground.scaled(64 * MIB, 4 * MIB), ground.scaled(16, 4)
    keys, link = _repeat(ground, "shards", n, "shards", size), ground.link(0.02)
    what = f"{n} shards of {size // MIB} MiB, shard-local shuffle, 4 readers, 20 ms"
    ours, stream = ground.row("shards", what, "s3mount"), ground.row("shards", what, "s3mount, sequential")
    for _ in range(ground.repeats):
        with ground.mounted(contestants.s3mount(), link) as who:
            ground.measure(stream, who, link, "streams", who.source, _READERS, *keys)
        with ground.mounted(contestants.s3mount(), link) as who:
            ground.measure(ours, who, link, "shards", "read", who.source, _READERS, *keys)
        ours.note(gets_of_parts=ours.figures["GET"][-1] / (n * size / DEFAULT_PART_SIZE))
    ours.ratio("of_sequential", "mb_per_s", stream)
    ours.at_most("gets_of_parts", 1.2)
    ours.at_least("of_sequential", 0.7)


def tars(ground: Ground) -> None:
    """webdataset in the workers of a DataLoader."""
    size, n = ground.scaled(64 * MIB, 4 * MIB), ground.scaled(16, 4)
    what = f"{n} tar shards of {size // MIB} MiB, webdataset, 4 workers, 20 ms"
    if not ground.needs_peers("tars", what):
        return
    keys, link = _repeat(ground, "tars", n, "tars", size), ground.link(0.02)
    makers: list[Maker] = [contestants.s3mount(), contestants.connector, contestants.s3fs_fuse, contestants.fsspec]
    for _ in range(ground.repeats):
        for make in makers:
            with ground.mounted(make, link) as who:
                ground.measure(
                    ground.row("tars", what, who.name), who, link, "tars", "read", who.source, _READERS, *keys
                )
    ours = ground.row("tars", what, "s3mount")
    ours.ratio("of_connector", "samples_per_s", ground.row("tars", what, "connector"))
    ours.at_least("samples_per_s", 2000)
    ours.at_least("of_connector", 1.0)


def _repeat(ground: Ground, directory: str, n: int, maker: str, size: int) -> list[str]:
    """The same shard under `n` keys."""
    local = ground.directory(directory) / "shard"
    ground.program(f"readers.{maker}", "make", local, size, _SAMPLE)
    return [ground.objects.put_file(f"{directory}/{index:05d}-of-{n:05d}", local) for index in range(n)]


def slices(ground: Ground) -> None:
    """Tensor parallelism: processes that map the same files, and each takes its part of every tensor."""
    size, n = ground.scaled(512 * MIB, 16 * MIB), 4
    what = f"{n} safetensors of {size // MIB} MiB, slices by 8 processes of 4 threads, read-ahead 128 KiB, 30 ms"
    if not ground.needs_peers("slices", what):
        return
    model = _make_model(ground, "safetensors", size)
    keys = [ground.objects.put_file(f"model/{index:05d}-of-{n:05d}.safetensors", model) for index in range(n)]
    link, total = ground.link(0.03), n * model.stat().st_size
    ours, cat = ground.row("slices", what, "s3mount"), ground.row("slices", what, "s3mount, cat")
    untuned = contestants.s3mount("--no-kernel-tuning")
    for _ in range(ground.repeats):
        with ground.mounted(untuned, link) as who:
            ground.measure(cat, who, link, "streams", who.source, 1, *keys)
        with ground.mounted(untuned, link) as who:
            paths = [who.path / key for key in keys]
            ground.measure(ours, who, link, "tensors", "slices", _RANKS, _THREADS, *paths)
        ours.note(server_of_files=ours.figures["server_mb"][-1] * 1e6 / total)
    ours.ratio("seconds_of_cat", "seconds", cat)
    ours.at_most("server_of_files", 1.05)
    ours.at_most("seconds_of_cat", 1.5)


def load(ground: Ground) -> None:
    """A model's file loaded whole, against reading it."""
    link = ground.link(0.03)
    for kind, full in (("safetensors", 2 * GIB), ("torch", GIB)):
        size = ground.scaled(full, 64 * MIB)
        what = f"{kind} load of {size // MIB} MiB, 30 ms"
        if not ground.needs_peers("load", what):
            continue
        key = ground.objects.put_file(f"load/model.{kind}", _make_model(ground, kind, size))
        _load(ground, link, what, kind, key)


def _load(ground: Ground, link: Link, what: str, kind: str, key: str) -> None:
    ours, dd = ground.row("load", what, "s3mount"), ground.row("load", what, "s3mount, dd")
    makers: list[Maker] = [contestants.s3mount(), contestants.s3fs_fuse]
    makers += [contestants.connector] if kind == "torch" else []
    for _ in range(ground.repeats):
        with ground.mounted(contestants.s3mount(), link) as who:
            ground.measure(dd, who, link, "streams", who.source, 1, key)
        for make in makers:
            with ground.mounted(make, link) as who:
                ground.measure(ground.row("load", what, who.name), who, link, "tensors", "load", kind, who.source, key)
    ours.ratio("of_dd", "mb_per_s", dd)
    ours.at_least("of_dd", 0.8)


def _make_model(ground: Ground, kind: str, size: int) -> Path:
    path = ground.directory("model") / f"model.{kind}"
    ground.program("readers.tensors", "make", kind, path, size)
    return path
