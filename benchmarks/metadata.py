"""The listing and stat numbers: ours, the same client without a mount, and s3fs, in one run.

usage: python -m benchmarks.metadata [--only PART,PART] [--quick] [--repeats N] [--json FILE]

Needs root, /dev/fuse and what `.ci/prepare test,bench` installs.  Absolute figures depend on the
machine; the ratios are what to look at.  Parts, at 30 ms per request where nothing else is said:

    flat     100,000 names in one directory: ls -f, against the same pages one after another
    tree     os.walk of 100,000 files in 1,000 directories, twice
    cpu      a page of 1,000 keys: parsing it, and the whole LIST
    cache    bytes of the metadata cache for each of 1,000,000 names
    million  memory of the daemon around two finds of 1,000,000 files, without delay
    rows     ls -l of 10,000 names, then a stat of each (without a TTL: of 1,000)
    s3fs     ls and find of 10,000 names, ours and Debian's s3fs, and s3fs with 100,000

Names are in SeaweedFS; those of the other shapes, and the million, in a server of keys without
objects (`many_keys`).
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks.contenders import Contender, s3fs, s3mount, s3mount_ttl
from benchmarks.distance import Front
from benchmarks.many_keys import KeySet, make_keys
from benchmarks.run import Run, settled
from s3mount.store.list_xml import parse_list_page
from tests.support.servers import make_client

Maker = Callable[..., AbstractContextManager[Contender]]

_DELAY_S = 0.03
_NAMES, _DIRECTORIES, _MILLION, _ROWS, _PAGE = 100_000, 1000, 1_000_000, 10_000, 1000
#: Names that are stat'ed without a TTL, where each may cost a request.
_STATS = 1000
#: Seconds for each program on s3fs, which asks for every name by itself.
_PATIENCE_S = 300
#: Times that a page is parsed, for the mean.
_PARSED = 50


def flat(run: Run) -> None:
    """One directory of 100,000 names."""
    n = run.count(_NAMES)
    stored = run.stored("padded", "flat", n)
    _flat(run, f"{n:,} names, 30 ms", run.front(stored, _DELAY_S), (s3mount, s3mount_ttl), 0.4)
    _flat(run, f"{n:,} names, no delay", run.front(stored, 0), (s3mount,), None)
    for shape in ("padded", "hexadecimal", "classes"):
        front = run.front(run.generated(shape, "flat", n), _DELAY_S)
        _flat(run, f"{n:,} {shape} names without objects, 30 ms", front, (s3mount,), 0.4)


def _flat(run: Run, label: str, front: Front, makers: Iterable[Maker], aim: float | None) -> None:
    n = run.count(_NAMES)
    for _ in range(run.repeats):
        raw = run.ask("raw_list", front.url, run.bucket, "flat/")
        run.note(f"{label}: pages one by one, no mount", seconds=raw["seconds"], LIST=raw["pages"])
    serial_s = statistics.median(run.results[f"{label}: pages one by one, no mount"]["seconds"])
    for make in makers:
        for _ in range(run.repeats):
            with make(run.bucket, front.url, run.directory()) as mount:
                row = f"{label}: {mount.name}, ls -f"
                cpu_s = mount.cpu_s()
                with run.counting(front) as requests:
                    seconds = _complete(run, n, "ls", "-f", f"{mount.path}/flat")
                run.note(row, cpu_s=mount.cpu_s() - cpu_s)
            with make(run.bucket, front.url, run.directory()) as mount:
                first = run.ask("walks", "first", f"{mount.path}/flat")
            run.note(row, seconds=seconds, of_serial=seconds / serial_s, LIST=requests.LIST, first_s=first["seconds"])
            if aim is not None:
                run.aim(row, of_serial=aim)


def _complete(run: Run, n: int, *command: str) -> float:
    """Seconds of a program that prints `n` names; up to three lines are its own ("total", ".", "..").

    Raises:
        RuntimeError: names are lost, or too many.
    """
    done = run.program(*command)
    if done.seconds is None or not 0 <= done.n_lines - n <= 3:
        raise RuntimeError(f"{' '.join(command)} printed {done.n_lines} lines for {n} names")
    return done.seconds


def tree(run: Run) -> None:
    """os.walk, cold and again."""
    n, n_directories = run.count(_NAMES), run.count(_DIRECTORIES)
    front = run.front(run.stored("tree", "tree", n, n_directories), _DELAY_S)
    one_by_one_s = n_directories * _DELAY_S
    for make in (s3mount_ttl, s3mount):
        with make(run.bucket, front.url, run.directory()) as mount:
            for walk in ("first", "second"):
                row = f"{n:,} files in {n_directories:,} directories, 30 ms: {mount.name}, {walk} os.walk"
                cpu_s = mount.cpu_s()
                with run.counting(front) as requests:
                    walked = run.ask("walks", "walk", f"{mount.path}/tree")
                if walked["files"] != n:
                    raise RuntimeError(f"os.walk found {walked['files']} of {n} files")
                of_delays = walked["seconds"] / one_by_one_s
                run.note(row, seconds=walked["seconds"], of_one_by_one=of_delays, LIST=requests.LIST)
                run.note(row, cpu_s=mount.cpu_s() - cpu_s)
                if make is s3mount_ttl:
                    run.aim(row, **({"of_one_by_one": 0.1} if walk == "first" else {"seconds": 1.5, "LIST": 0}))


def cpu(run: Run) -> None:
    """CPU of one page of 1,000 keys, as two servers write it."""
    front = run.front(run.stored("padded", "rows", run.count(_ROWS)), 0)
    recorded = _recorded_page(front.url, run.bucket)
    keys = KeySet(make_keys("hexadecimal", "rows", _PAGE))
    made = keys.page({"prefix": "rows/", "encoding-type": "url"})
    for writer, body in (("SeaweedFS", recorded), ("S3", made)):
        row = f"a page of 1,000 keys, as {writer} writes it: parse_list_page"
        parse_list_page(body)
        for _ in range(run.repeats):
            started = time.process_time()
            for _ in range(_PARSED):
                parse_list_page(body)
            run.note(row, cpu_ms=(time.process_time() - started) / _PARSED * 1000)
        run.aim(row, cpu_ms=5)
    for writer, near in (
        ("SeaweedFS", front),
        ("S3", run.front(run.generated("hexadecimal", "rows", run.count(_NAMES)), 0)),
    ):
        for _ in range(run.repeats):
            raw = run.ask("raw_list", near.url, run.bucket, "rows/")
            row = f"a page of 1,000 keys, as {writer} writes it: the whole LIST, all threads"
            run.note(row, cpu_ms=raw["cpu_ms_per_page"])


def _recorded_page(url: str, bucket: str) -> bytes:
    """The answer of a server to a LIST, as it came."""
    client, bodies = make_client(url), list[bytes]()

    def keep(response_dict: dict[str, Any], **_: Any) -> None:
        bodies.append(response_dict["body"])

    client.meta.events.register("before-parse.s3.ListObjectsV2", keep)
    client.list_objects_v2(Bucket=bucket, Prefix="rows/", EncodingType="url")
    return bodies[0]


def cache(run: Run) -> None:
    """What a name costs; tracing takes ten times as long, so it sees a fifth of the names."""
    for how, n in (("rss", run.count(_MILLION)), ("tracemalloc", run.count(_MILLION) // 5)):
        row = f"metadata cache, listings of 1,000 names, {how}"
        figures = run.ask("cache_memory", how, n)
        run.note(row, **figures)
        run.aim(row, bytes_per_name=500)


def million(run: Run) -> None:
    """Two finds, and what the daemon holds after the kernel forgot the names."""
    n, n_directories = run.count(_MILLION), run.count(_DIRECTORIES)
    for shape, numbers, makers in (
        ("tree", (n, n_directories), (s3mount, s3mount_ttl)),
        ("padded", (n,), (s3mount,)),
    ):
        front = run.front(run.generated(shape, "many", *numbers), 0)
        where = f"in {n_directories:,} directories" if shape == "tree" else "in one directory"
        for make in makers:
            with make("many", front.url, run.directory()) as mount:
                n_lines = n + n_directories if shape == "tree" else n
                _find_twice(run, f"{n:,} files {where}: {mount.name}", front, mount, n_lines)


def _find_twice(run: Run, label: str, front: Front, mount: Contender, n: int) -> None:
    start = settled(mount.rss_mib)
    run.note(f"{label}, at the start", rss_mib=start)
    dropped = [start]
    for which in ("first", "second"):
        cpu_s = mount.cpu_s()
        with run.counting(front) as requests:
            seconds = _complete(run, n, "find", f"{mount.path}/many")
        row = f"{label}, {which} find"
        run.note(row, seconds=seconds, LIST=requests.LIST, cpu_s=mount.cpu_s() - cpu_s, rss_mib=mount.rss_mib())
        _forget(mount)
        dropped.append(settled(mount.rss_mib))
        run.note(f"{row}, dropped", rss_mib=dropped[-1], more_mib=dropped[-1] - dropped[-2])
        if not mount.name.endswith("indefinite"):
            # The second adds nothing: up to what an allocator's pages do by themselves.
            run.aim(f"{row}, dropped", more_mib=64 if which == "first" else 4, rss_mib=start + 64)


def _forget(mount: Contender) -> None:
    """The kernel forgets every name that nobody uses; one that was used lately is passed over the first time."""
    for _ in range(4):
        Path("/proc/sys/vm/drop_caches").write_text("2", encoding="ascii")
        settled(mount.rss_mib)


def rows(run: Run) -> None:
    """ls -l, again, and a stat of each name."""
    n = run.count(_ROWS)
    front = run.front(run.stored("padded", "rows", n), _DELAY_S)
    for make in (s3mount, s3mount_ttl):
        for _ in range(run.repeats):
            with make(run.bucket, front.url, run.directory()) as mount:
                label = f"{n:,} names, 30 ms: {mount.name}"
                for which in ("ls -l", "ls -l again"):
                    with run.counting(front) as requests:
                        seconds = _complete(run, n, "ls", "-l", f"{mount.path}/rows")
                    run.note(f"{label}, {which}", seconds=seconds, LIST=requests.LIST, HEAD=requests.HEAD)
                most = n if make is s3mount_ttl else run.count(_STATS)
                with run.counting(front) as requests:
                    figures = run.ask("walks", "stat", f"{mount.path}/rows", most)
                row = f"{label}, listdir and a stat of {most:,}"
                run.note(row, seconds=figures["seconds"], LIST=requests.LIST, HEAD=requests.HEAD)
                run.aim(f"{label}, ls -l", LIST=-(-n // _PAGE) + 1, HEAD=0)
                if make is s3mount_ttl:
                    run.aim(row, LIST=0, HEAD=0)
                    run.aim(f"{label}, ls -l again", LIST=0, HEAD=0)


def against_s3fs(run: Run) -> None:
    """The same programs on each contender, each on a mount of its own."""
    n, n_directories = run.count(_ROWS), max(run.count(_DIRECTORIES) // 10, 1)
    run.stored("padded", "rows", n)
    front = run.front(run.stored("tree", "shallow", n, n_directories), _DELAY_S)
    programs = (("ls", "-f", "rows"), ("ls", "-l", "rows"), ("find", "shallow"))
    for make in (s3mount, s3mount_ttl, s3fs):
        for *command, name in programs:
            what = f"{n:,} names" if name == "rows" else f"{n:,} files in {n_directories} directories"
            _on(run, f"{what}, 30 ms: {' '.join(command)}", front, make, [*command, name])
    big = run.count(_NAMES)
    run.stored("padded", "flat", big)
    _on(run, f"{big:,} names, 30 ms: ls -f", front, s3fs, ["ls", "-f", "flat"])


def _on(run: Run, label: str, front: Front, make: Maker, command: list[str]) -> None:
    with make(run.bucket, front.url, run.directory()) as mount, run.counting(front) as requests:
        *program, name = command
        done = run.program(*program, f"{mount.path}/{name}", patience_s=_PATIENCE_S)
        row = f"{label}: {mount.name}"
    if done.seconds is None:
        row += f", given up after {_PATIENCE_S} s"
    run.note(row, seconds=done.seconds, LIST=requests.LIST, HEAD=requests.HEAD)


_PARTS = {
    "flat": flat, "tree": tree, "cpu": cpu, "cache": cache, "million": million, "rows": rows, "s3fs": against_s3fs,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(_PARTS), help=f"some of {','.join(_PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the names, once")
    parser.add_argument("--repeats", type=int, default=3, help="of what is cheap")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = options.only.split(",")
    if not set(chosen) <= set(_PARTS):
        parser.error(f"--only takes some of {','.join(_PARTS)}")
    with tempfile.TemporaryDirectory(prefix="s3mount-bench-") as temporary:
        repeats, divisor = (1, 10) if options.quick else (options.repeats, 1)
        with Run(Path(temporary).resolve(), repeats, divisor) as run:
            for name in chosen:
                _PARTS[name](run)
                run.report()
                if options.json:
                    options.json.write_text(json.dumps(run.results, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
