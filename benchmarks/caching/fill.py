"""What filling the disk cache costs those who read meanwhile, and how fast it is without any."""

import os
import subprocess
import sys
import time
from importlib.util import find_spec

from benchmarks.caching.place import FILE_BYTES, N_STREAMS, Place, Reading, drop_pages, settle
from benchmarks.reading.table import Row
from tests.support.mounts import aws_environment

_FAR_S = 0.02
_IN_FLIGHT = 64
_CTL = "s3mount.cli.ctl"


def fill(place: Place) -> None:
    """Cold reads with an empty cache against none, in turns."""
    for reading in (place.streams(1), place.streams(N_STREAMS), place.files(16, 600)):
        _fill(place, reading)


def _fill(place: Place, reading: Reading) -> None:
    ground = place.ground
    off, on = (ground.row("fill", f"cold, {reading.what}", who) for who in ("s3mount, no cache", "s3mount"))
    for _ in range(ground.repeats):
        for row, directory in ((off, None), (on, ground.directory("empty"))):
            with ground.mounted(place.ours(directory), place.link) as who:
                os.listdir(who.path / "data")
                place.measure(row, who, reading)
                if directory is not None:
                    settle(directory)
    on.ratio("of_no_cache", "mb_per_s", off)
    on.ratio("cpu_of_no_cache", "cpu_s_per_gb", off)
    on.at_least("of_no_cache", 0.95, until_cpu_full=True)


def disk(place: Place) -> None:
    """What the disk itself does now: one dd each way, and 4 dd at once. No aims: it says what the ratios stand on."""
    ground, block = place.ground, f"bs={1 << 20}"
    target = ground.directory("dd") / "written"
    sources = [place.local.path / key for key in place.quarters]
    for _ in range(ground.repeats):
        for what, commands in (
            ("dd, one file read", [[f"if={sources[0]}", "of=/dev/null", block]]),
            ("dd, 4 files read at once", [[f"if={source}", "of=/dev/null", block] for source in sources]),
            ("dd, one file written and synced", [[f"if={sources[0]}", f"of={target}", block, "conv=fsync"]]),
        ):
            drop_pages()
            began = time.perf_counter()
            running = [subprocess.Popen(["dd", "status=none", *command]) for command in commands]
            if any([process.wait() for process in running]):
                raise RuntimeError(f"{what} failed")
            n_bytes = len(commands) * place.stream_bytes // N_STREAMS
            ground.row("disk", what, "dd").note(mb_per_s=n_bytes / (time.perf_counter() - began) / 1e6)


def warm(place: Place) -> None:
    """`s3mountctl warm` of many small files at a distance, against the raw client."""
    if find_spec(_CTL) is None:
        print("\nwarm: left out, this tree has no s3mountctl", flush=True)
        return
    ground, link = place.ground, place.ground.link(_FAR_S)
    keys = [f"warm/{index:05d}.jpg" for index in range(ground.scaled(10_000, 200))]
    manifest = ground.objects.put_many(keys, FILE_BYTES)
    what = f"{len(keys)} files of 115 kB, 20 ms"
    raw, ours = (ground.row("warm", what, who) for who in ("raw CRT", "s3mountctl warm"))
    for _ in range(ground.repeats):
        ground.raw(raw, link, "samples", manifest, FILE_BYTES, _IN_FLIGHT, 600)
        directory = ground.directory("warmed")
        with ground.mounted(place.ours(directory), link) as who, ground.watched(link) as seen:
            _warm(ours, [str(who.path / "warm")], len(keys))
        ours.note(GET=seen[0].gets)
    ours.ratio("of_raw", "files_per_s", raw)
    ours.at_least("of_raw", 0.9, until_cpu_full=True)


def _warm(row: Row, paths: list[str], n_files: int) -> None:
    began = time.perf_counter()
    command = [sys.executable, "-c", f"from {_CTL} import main; main(prog_name='s3mountctl')", "warm", *paths, "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=aws_environment())
    took_s = time.perf_counter() - began
    row.note(files_per_s=n_files / took_s, mb_per_s=n_files * FILE_BYTES / took_s / 1e6, seconds=took_s)
