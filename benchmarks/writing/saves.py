"""Checkpoints: one file by torch.save, one directory by two ranks of torch.distributed.checkpoint."""

from benchmarks.reading import contestants
from benchmarks.reading.contestants import Link, Maker
from benchmarks.reading.ground import Ground
from benchmarks.writing.mounts import s3fs_fuse, s3mount, watched_spool
from s3mount.units import GIB, MIB

_RAW = 16
_FAR_S = 0.02
_RANKS = 2
#: What a daemon has beside the memory target: the interpreter, the CRT and what malloc keeps (docs/performance.md).
_BESIDE_MIB = 150


def _links(ground: Ground) -> list[tuple[str, Link]]:
    return [("same machine", ground.link(0, "0")), ("20 ms", ground.link(_FAR_S, "0"))]


def save(ground: Ground) -> None:
    """torch.save with what keeps nothing on disk, against the connector's writer and the raw client."""
    size = ground.scaled(GIB, 64 * MIB)
    target_mib = 1024
    ours = s3mount("--no-spool-streamed", "--memory-target", str(target_mib))
    for where, link in _links(ground):
        what = f"torch.save of {size // MIB} MiB, {where}"
        if not ground.needs_peers("save", what):
            continue
        row, raw = ground.row("save", what, "s3mount"), ground.row("save", what, "raw CRT")
        for repeat in range(ground.repeats):
            ground.note_raw(raw, link, "stream", size, _RAW)
            with ground.mounted(ours, link) as who:
                assert who.daemon
                with watched_spool(who.path.parent / "spool", who.daemon.pid) as disk:
                    ground.measure(row, who, link, "writers.tensors", "save", who.source, f"a{repeat}.pt", size)
                row.note(peak_disk_mib=disk.peak / MIB)
            makers: list[Maker] = [s3mount(name="s3mount, spool"), contestants.connector, s3fs_fuse]
            for make in makers:
                with ground.mounted(make, link) as who:
                    other = ground.row("save", what, who.name)
                    ground.measure(other, who, link, "writers.tensors", "save", who.source, f"b{repeat}.pt", size)
            ground.empty()
        row.ratio("of_raw", "mb_per_s", raw)
        row.ratio("of_connector", "mb_per_s", ground.row("save", what, "connector"))
        row.at_least("of_connector", 1.0)
        row.at_least("of_raw", 0.8)
        row.at_most("peak_disk_mib", 0.01)  # a block for the record of uploads
        row.at_most("peak_rss_mib", target_mib + _BESIDE_MIB)
        if where != "20 ms":
            row.at_most("cpu_s_per_gb", 0.9)


def distributed(ground: Ground) -> None:
    """dcp.save and dcp.load by two processes."""
    size = ground.scaled(GIB, 64 * MIB)
    for where, link in _links(ground):
        for call in ("dcp-save", "dcp-load"):
            what = f"{call} of {size // MIB} MiB, {_RANKS} processes, {where}"
            if not ground.needs_peers("dcp", what):
                continue
            ours = ground.row("dcp", what, "s3mount")
            for _ in range(ground.repeats):
                for make in (s3mount(), contestants.connector):
                    with ground.mounted(make, link) as who:
                        row = ground.row("dcp", what, who.name)
                        name = f"{who.name}-{where.replace(' ', '-')}"
                        ground.measure(row, who, link, "writers.tensors", call, who.source, name, size, _RANKS)
            ours.ratio("of_connector", "mb_per_s", ground.row("dcp", what, "connector"))
            ours.at_least("of_connector", 1.0)
        ground.empty()
