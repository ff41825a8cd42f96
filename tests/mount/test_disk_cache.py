"""Real mounts with --cache: requests counted by a proxy, across kill -9, another mount, and a dropped page cache."""

import os
import random
import re
import stat
from pathlib import Path

import pytest

from s3mount.units import KIB, MIB
from tests.cache.disk_harness import block_files
from tests.mount.test_ttl import put
from tests.support.content import make_content
from tests.support.mounts import Mount, mounted
from tests.support.processes import wait_until
from tests.support.proxy import proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

INDEFINITE = ("--metadata-ttl", "indefinite")
CONTENTS = {f"d/s{n:02}": make_content(f"s{n}", 115_000) for n in range(20)} | {
    "large": make_content("large", 41 * MIB + 777)
}
#: Of the large file: the first MiB, seven of the first part, and then parts; each small file is one.
BLOCKS = 20 + 1 + 7 + 5


def filled_bucket(weed: Server) -> str:
    bucket = weed.make_bucket()
    for key, content in CONTENTS.items():
        put(weed, bucket, key, content)
    return bucket


def read_all(mount: Mount) -> None:
    """An epoch: every name is listed, every file read whole and compared."""
    assert sorted(os.listdir(mount.path / "d")) == [key[2:] for key in sorted(CONTENTS) if key != "large"]
    for key, content in CONTENTS.items():
        assert (mount.path / key).read_bytes() == content


def drop_pages(mount: Mount) -> None:
    """The kernel forgets the content of the mount's files, and no other."""
    for key in CONTENTS:
        fd = os.open(mount.path / key, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def wait_for_blocks(directory: Path) -> None:
    wait_until(lambda: len(block_files(directory)) >= BLOCKS, 30, "the blocks on disk")


def test_an_epoch_from_disk_is_no_request(weed: Server, work: Path) -> None:
    """With a cache on disk an epoch costs no request when the kernel has forgotten the content, while the TTL lasts."""
    bucket, cache = filled_bucket(weed), work / "c"
    with proxy(weed.url) as front, mounted(bucket, work, "--cache", str(cache), *INDEFINITE, url=front.url) as mount:
        read_all(mount)
        wait_for_blocks(cache)
        drop_pages(mount)
        front.reset()
        read_all(mount)
        assert front.count() == 0
        assert mount.stop() == 0
        assert mount.warnings() == []
    assert "disk cache " in mount.log


def test_a_cache_outlives_its_mount(weed: Server, work: Path) -> None:
    """What a mount read before kill -9 the next mount of the bucket reads from disk, without a GET."""
    bucket, cache = filled_bucket(weed), work / "c"
    flags = ("--cache", str(cache), *INDEFINITE)  # else an open a second after the listing is a HEAD
    with proxy(weed.url) as front:
        with mounted(bucket, work / "one", *flags, url=front.url) as mount:
            read_all(mount)
            wait_for_blocks(cache)
            mount.kill()
        front.reset()
        with mounted(bucket, work / "two", *flags, url=front.url) as mount:
            read_all(mount)
            assert front.count("GET", is_list=False) == front.count("HEAD") == 0
            assert mount.warnings() == []


def test_two_mounts_share_a_cache(weed: Server, work: Path) -> None:
    """Two mounts at once share one cache directory: what the one has read the other reads without a GET."""
    bucket, flags = filled_bucket(weed), ("--cache", str(work / "c"), *INDEFINITE)
    with (
        proxy(weed.url) as front,
        mounted(bucket, work / "one", *flags, url=front.url) as one,
        mounted(bucket, work / "two", *flags, url=front.url) as two,
    ):
        read_all(one)
        wait_for_blocks(work / "c")
        front.reset()
        read_all(two)
        assert front.count("GET", is_list=False) == 0
        assert one.warnings() == two.warnings() == []


def test_an_open_asks_s3_in_the_minimal_mode(weed: Server, work: Path) -> None:
    """With --cache and --metadata-ttl minimal an open of what is on disk is one HEAD, and shows a replacement."""
    bucket, cache = filled_bucket(weed), work / "c"
    flags = ("--cache", str(cache), "--metadata-ttl", "minimal")
    with proxy(weed.url) as front, mounted(bucket, work, *flags, url=front.url) as mount:
        read_all(mount)
        wait_for_blocks(cache)
        drop_pages(mount)
        front.reset()
        for key in ("d/s03", "large"):
            assert (mount.path / key).read_bytes() == CONTENTS[key]
        assert (front.count("HEAD"), front.count("GET", is_list=False)) == (2, 0)
        put(weed, bucket, "d/s03", b"new" * 1000)
        assert (mount.path / "d/s03").read_bytes() == b"new" * 1000


def test_random_reads_read_little_from_disk(weed: Server, work: Path) -> None:
    """A random pread of 4 KiB of what is on disk is no request, and reads no more than 32 KiB of the disk."""
    bucket, cache = filled_bucket(weed), work / "c"
    with proxy(weed.url) as front, mounted(bucket, work, "--cache", str(cache), *INDEFINITE, url=front.url) as mount:
        read_all(mount)
        wait_for_blocks(cache)
        front.reset()
        fd = os.open(mount.path / "large", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.pread(fd, 4 * KIB, 0)
        before = bytes_read(mount)
        offsets = random.Random(1).sample(range(2 * MIB, 41 * MIB, 64 * KIB), 100)
        for offset in offsets:
            assert os.pread(fd, 4 * KIB, offset) == CONTENTS["large"][offset : offset + 4 * KIB]
        os.close(fd)
        assert bytes_read(mount) - before <= len(offsets) * 40 * KIB  # the header of a block that is opened anew, too
        assert front.count() == 0


def test_every_flag(weed: Server, work: Path) -> None:
    """Two cache directories are filled beside each other, and all flags of the cache are kept to."""
    bucket, caches = filled_bucket(weed), [work / "c1", work / "c2"]
    flags = [flag for cache in caches for flag in ("--cache", str(cache))]
    flags += ["--max-cache-size", "20", "--cache-min-free", "0.5", "--cache-block-size", "1024"]
    flags += ["--cache-policy", "pin", "--cache-policy", "d/s19=off", "--cache-group", "54321", *INDEFINITE]
    with proxy(weed.url) as front, mounted(bucket, work, *flags, url=front.url) as mount:
        read_all(mount)
        wait_until(lambda: sum(size_of(cache) for cache in caches) > 15 * MIB, 30, "the blocks on disk")
        drop_pages(mount)
        read_all(mount)
        assert mount.stop() == 0
        assert mount.warnings() == []
    assert all(2 * MIB < size_of(cache) <= 10 * MIB for cache in caches)
    assert {(path.stat().st_gid, stat.S_IMODE(path.stat().st_mode)) for path in caches} == {(54_321, 0o2770)}
    off = CONTENTS["d/s19"][:4096]
    assert not any(off in path.read_bytes() for cache in caches for path in block_files(cache))
    assert {path.stat().st_size for cache in caches for path in block_files(cache)} <= {
        1 * MIB + 4 * KIB, 115_000 + 4 * KIB, len(CONTENTS["large"]) % MIB + 4 * KIB,
    }  # fmt: skip
    kept = re.findall(r"disk cache .*; (\d+) hits?, .* (\d+) evicted, \d+ dropped, (\d+) refused", mount.log)
    assert len(kept) == 2
    assert all(int(hits) > 0 and int(evicted) == 0 and int(refused) > 0 for hits, evicted, refused in kept)


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in block_files(directory))


def bytes_read(mount: Mount) -> int:
    """By the daemon, of files and of what the kernel asked."""
    counters = Path(f"/proc/{mount.daemon_pid}/io").read_text(encoding="ascii")
    return int(counters.partition("rchar:")[2].split()[0])
