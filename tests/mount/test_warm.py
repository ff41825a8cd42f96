"""`s3mountctl warm`, `evict`, `cache` and `refresh` against real mounts, with the requests counted by a proxy."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from s3mount.units import MIB
from tests.cache.disk_harness import block_files
from tests.mount.test_ttl import put
from tests.support.content import make_content
from tests.support.ctl import result_of, run_ctl
from tests.support.mounts import Mount, mounted
from tests.support.proxy import Fault, Proxy, Request, error_answer, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

CONTENTS = {f"d/e/s{n:02}": make_content(f"s{n}", 115_000) for n in range(20)} | {
    "d/empty": b"",
    "large": make_content("large", 21 * MIB + 777),
    "other/x\x1b[31m": make_content("x", 3000),
}


@contextmanager
def warmable(weed: Server, work: Path) -> Iterator[tuple[Proxy, Mount]]:
    """A mount with a cache and a bucket of `CONTENTS`."""
    bucket = weed.make_bucket()
    for key, content in CONTENTS.items():
        put(weed, bucket, key, content)
    flags = ("--cache", str(work / "c"), "--metadata-ttl", "indefinite")
    with proxy(weed.url) as front, mounted(bucket, work, *flags, url=front.url) as mount:
        yield front, mount


def gets(front: Proxy) -> int:
    return front.count("GET", is_list=False)


def test_warm_then_no_get(weed: Server, work: Path) -> None:
    """After s3mountctl warm every file is read from disk without a GET, and a second warm makes none."""
    with warmable(weed, work) as (front, mount):
        first = run_ctl("warm", mount.path, "--json")
        facts = result_of(first)
        assert (first.returncode, facts["done_files"], facts["cached_files"]) == (0, len(CONTENTS), 0)
        assert facts["done_bytes"] == facts["n_bytes"] == sum(map(len, CONTENTS.values()))
        front.reset()
        again = result_of(run_ctl("warm", mount.path, "--json"))
        assert again["cached_files"] == len(CONTENTS) - 1  # the empty one needs no block
        for key, content in CONTENTS.items():
            assert (mount.path / key).read_bytes() == content
        assert gets(front) == front.count("HEAD") == 0
        assert mount.stop() == 0
        assert mount.warnings() == []


def test_warm_some_paths(weed: Server, work: Path) -> None:
    """Paths are files and directories, relative to MOUNT or absolute, as arguments or one a line from a file."""
    with warmable(weed, work) as (front, mount):
        assert run_ctl("warm", mount.path, "d/e/s00", mount.path / "d/e/s01").returncode == 0
        assert gets(front) == 2
        listed = run_ctl("warm", mount.path / "d", "--from", "-", stdin=b"e/s02\ne/s03\n\ne/s03\n")
        assert listed.returncode == 0, listed
        assert gets(front) == 4
        assert "2 of 2 files" in listed.stdout
        assert run_ctl("warm", mount.path / "d/e").returncode == 0  # all below the directory that is named
        assert gets(front) == 20
        assert run_ctl("warm", mount.path, "/etc").returncode == 2
        missing = run_ctl("warm", mount.path, "nothing", "other")
        assert missing.returncode == 1
        assert "nothing: nothing has this name" in missing.stderr
        assert gets(front) == 21


def test_warm_with_one_that_fails(weed: Server, work: Path) -> None:
    """An object that S3 refuses is listed with the reason, its key escaped; others are warmed, and the status is 1."""

    def decide(request: Request) -> Fault | None:
        is_it = request.method == "GET" and not request.is_list and "other/" in request.target
        return Fault(answer=error_answer(403, "AccessDenied")) if is_it else None

    with warmable(weed, work) as (front, mount):
        front.decide = decide
        ran = run_ctl("warm", mount.path)
        assert ran.returncode == 1
        assert "other/x\\x1b[31m: " in ran.stderr
        assert "AccessDenied" in ran.stderr
        assert "\x1b" not in ran.stderr + ran.stdout
        assert f"{len(CONTENTS) - 1} of {len(CONTENTS)} files" in ran.stdout
        assert ", 1 failed" in ran.stdout
        front.decide = None
        front.reset()
        assert run_ctl("warm", mount.path).returncode == 0
        assert gets(front) == 1


def test_warm_more_than_fits(weed: Server, work: Path) -> None:
    """Of more than the cache may hold as much as fits is warmed once, with a warning, and the rest is left out."""
    bucket = weed.make_bucket()
    for number in range(12):
        put(weed, bucket, f"f{number:02}", make_content(f"f{number}", MIB))
    flags = ("--cache", str(work / "c"), "--max-cache-size", "8")
    with proxy(weed.url) as front, mounted(bucket, work, *flags, url=front.url) as mount:
        for expected in (7, 0):
            front.reset()
            ran = run_ctl("warm", mount.path)
            assert ran.returncode == 1
            assert "warning: the cache may hold 8 MiB" in ran.stderr
            assert "7 of 12 files" in ran.stdout
            assert "5 left out" in ran.stdout
            assert gets(front) == expected


def test_evict(weed: Server, work: Path) -> None:
    """s3mountctl evict removes the blocks of what is below the paths, and with --all every block there is."""
    with warmable(weed, work) as (front, mount):
        assert run_ctl("warm", mount.path).returncode == 0
        facts = result_of(run_ctl("evict", mount.path, "d", "--json"))
        assert (facts["files"], facts["blocks"]) == (21, 20)
        front.reset()
        assert (mount.path / "d/e/s05").read_bytes() == CONTENTS["d/e/s05"]
        assert gets(front) == 1
        assert (mount.path / "large").read_bytes() == CONTENTS["large"]
        assert gets(front) == 1
        assert run_ctl("evict", mount.path, "--all").returncode == 0
        assert block_files(work / "c") == []


def test_cache_and_verify(weed: Server, work: Path) -> None:
    """s3mountctl cache shows what is there; verify removes the blocks that are wrong, lists them, and ends with 1."""
    with warmable(weed, work) as (_, mount):
        assert run_ctl("warm", mount.path).returncode == 0
        shown = run_ctl("cache", mount.path)
        files = block_files(work / "c")
        assert shown.returncode == 0
        assert f"in {len(files)} blocks" in shown.stdout
        (directory,) = result_of(run_ctl("cache", mount.path, "--json"))["directories"]
        assert (directory["path"], directory["blocks"]) == (str(work / "c"), len(files))
        assert directory["level"]["capacity"] >= directory["n_bytes"] > 0
        right = run_ctl("cache", mount.path, "verify")
        assert (right.returncode, f"{len(files)} blocks right" in right.stdout) == (0, True)
        wrong = files[3]
        with wrong.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            byte = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([byte[0] ^ 1]))
        found = run_ctl("cache", mount.path, "verify")
        assert found.returncode == 1
        assert wrong.name in found.stderr
        assert not wrong.exists()
        assert len(block_files(work / "c")) == len(files) - 1


def test_no_cache(weed: Server, work: Path) -> None:
    """On a mount without a cache, warm says that there is none; refresh and list need none."""
    bucket = weed.make_bucket()
    put(weed, bucket, "a", b"1")
    with mounted(bucket, work, "--metadata-ttl", "indefinite", url=weed.url) as mount:
        for arguments in (("warm", mount.path), ("evict", mount.path), ("cache", mount.path)):
            ran = run_ctl(*arguments)
            assert (ran.returncode, "mount it with --cache" in ran.stderr) == (2, True)
        assert os.listdir(mount.path) == ["a"]
        put(weed, bucket, "b", b"2")
        assert os.listdir(mount.path) == ["a"]
        (work / "link").symlink_to(work)
        assert run_ctl("refresh", work / "link/mnt/a/..").returncode == 0
        assert sorted(os.listdir(mount.path)) == ["a", "b"]
        listed = run_ctl("list", "--json")
        assert str(mount.daemon_pid) in listed.stdout
        assert str(mount.path) in [json.loads(line)["mount_point"] for line in listed.stdout.splitlines()]


def test_no_mount(work: Path) -> None:
    """A path in no mount of s3mount ends the command with 3."""
    ran = run_ctl("warm", work)
    assert ran.returncode == 3
    assert "is not in a mount of s3mount" in ran.stderr
