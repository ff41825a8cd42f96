"""Many small files by many processes, and a logger's lines."""

from pathlib import Path

from benchmarks.reading import contestants
from benchmarks.reading.contestants import Maker
from benchmarks.reading.ground import Ground
from benchmarks.writing.mounts import s3fs_fuse, s3mount
from benchmarks.writing.requests import count
from s3mount.units import MIB
from tests.support.processes import wait_until

_LENGTH = 100_000
_PROCESSES = 8
_LINE = 200


def files(ground: Ground) -> None:
    """1,000 files of 100 kB."""
    n = ground.scaled(1000, 40)
    for where, delay_s in (("same machine", 0.0), ("20 ms", 0.02)):
        link, what = ground.link(delay_s, "0"), f"{n} files of 100 kB by {_PROCESSES} processes, {where}"
        ours, raw = ground.row("files", what, "s3mount"), ground.row("files", what, "raw CRT")
        makers: list[Maker] = [s3mount(), s3fs_fuse]
        makers += [contestants.connector] if ground.has_peers else []
        for repeat in range(ground.repeats):
            ground.note_raw(raw, link, "files", n, _LENGTH, _PROCESSES)
            for make in makers:
                with ground.mounted(make, link) as who:
                    row, prefix = ground.row("files", what, who.name), f"{repeat}-{who.name.split('-')[0]}-{delay_s}-"
                    arguments = ("make", who.source, prefix, _PROCESSES, n, _LENGTH)
                    ground.measure(row, who, link, "writers.files", *arguments)
        ours.ratio("of_raw", "mb_per_s", raw)
        ours.ratio("of_s3fs", "mb_per_s", ground.row("files", what, "s3fs-fuse"))
        ours.at_least("of_raw", 0.7)
        ours.at_least("of_s3fs", 1.0)


def appends(ground: Ground) -> None:
    """1,000 lines of 200 bytes, each by an open of its own; all are in S3 a moment later."""
    n = ground.scaled(1000, 50)
    link, what = ground.link(0.0, "0"), f"{n} appends of {_LINE} bytes with reopen"
    ours = ground.row("appends", what, "s3mount")
    for repeat in range(ground.repeats):
        name = f"log{repeat}.txt"
        before = len(ground.lines(link))
        with ground.mounted(s3mount(), link) as who:
            ground.measure(ours, who, link, "writers.files", "append", who.path / name, n, _LINE)
            lost = _lost(ground, who.path / name, n)
        ours.note(PUT=count(ground.lines(link)[before:]).puts, lost=lost)
    ours.at_most("PUT", 20)
    ours.at_most("lost", 0)


def _lost(ground: Ground, path: Path, n: int) -> int:
    """Lines that are not in S3 five seconds after the last close."""
    expected = "".join(f"{number:0{_LINE - 1}d}\n" for number in range(n)).encode()
    assert path.stat().st_size == len(expected) < MIB

    def content() -> bytes:
        return bytes(ground.server.client.get_object(Bucket=ground.bucket, Key=path.name)["Body"].read())

    try:
        wait_until(lambda: content() == expected, 5, "all lines in S3")
    except TimeoutError:
        return n - content().count(b"\n")
    return 0
