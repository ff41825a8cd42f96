"""Real mounts by a configuration file: sections for paths, requests counted, and a file that changes under a mount."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.test_ttl import put
from tests.support.ctl import run_ctl
from tests.support.mounts import COMMAND, Mount, aws_environment, clean_up
from tests.support.processes import running, wait_until
from tests.support.proxy import proxy
from tests.support.servers import Server
from tests.support.takeover import wait_for_takeover

pytestmark = [pytest.mark.mount, pytest.mark.server]

SECTIONS = """
[path."datasets/**"]
metadata-ttl = "indefinite"
access = "read-only"

[path."ckpt/**"]
metadata-ttl = "minimal"
access = "rw"
"""


@contextlib.contextmanager
def mounted_by(config: Path, text: str, directory: Path) -> Iterator[Mount]:
    """What the file says, on `directory`/mnt, by a command that is told nothing but the file."""
    path = directory / "mnt"
    path.mkdir()
    config.write_text(f'directory = "{path}"\nforeground = true\n{text}', encoding="utf-8")
    log = directory / "s3mount.log"
    with running([COMMAND, "--config", str(config)], log, env=aws_environment()) as process:
        mount = Mount(path, process, log)
        try:
            wait_until(lambda: "mounted s3://" in mount.log or process.poll() is not None, 60, "mounting")
            yield mount
        finally:
            clean_up(path, process)


def reach(url: str, bucket: str) -> str:
    return f'bucket = "{bucket}"\nendpoint-url = "{url}"\nforce-path-style = true\n'


def test_data_and_checkpoints_in_one_mount(weed: Server, work: Path) -> None:
    """One mount serves both: a checkpoint written by another client is what the next open reads, and the data set,
    once listed and read, costs no request.
    """
    bucket = weed.make_bucket()
    names = [f"f{n}" for n in range(10)]
    for name in names:
        put(weed, bucket, f"datasets/{name}", name.encode())
    put(weed, bucket, "ckpt/last", b"step 0")
    with proxy(weed.url) as front, mounted_by(work / "x.conf", reach(front.url, bucket) + SECTIONS, work) as mount:
        datasets, last = mount.path / "datasets", mount.path / "ckpt/last"
        assert sorted(os.listdir(datasets)) == names
        assert [(datasets / name).read_bytes() for name in names] == [name.encode() for name in names]
        assert last.read_bytes() == b"step 0"
        costs = []
        for step in range(1, 5):
            put(weed, bucket, "ckpt/last", f"step {step}".encode())
            front.reset()
            assert last.read_bytes() == f"step {step}".encode()
            assert front.count() <= 4  # the old version is asked for, then the name, then the new one
            front.reset()
            assert sorted(os.listdir(datasets)) == names
            assert not (datasets / "missing").exists()
            assert [(datasets / name).read_bytes() for name in names] == [name.encode() for name in names]
            assert front.count() == front.count("GET", is_list=False)
            costs.append(front.count())
        assert min(costs) == 0, "the kernel may drop some pages, but not always"
        assert mount.warnings() == []


def test_who_may_write(weed: Server, work: Path) -> None:
    """Programs get EROFS under a section that is read-only; under one that is rw they replace and remove."""
    bucket = weed.make_bucket()
    for key in ("datasets/f", "ckpt/last", "ckpt/old", "other/f"):
        put(weed, bucket, key, b"old")
    text = reach(weed.url, bucket) + f'spool-dir = "{work}/spool"\n' + SECTIONS
    with mounted_by(work / "x.conf", text, work) as mount:
        for path, number in (("datasets/new", errno.EROFS), ("datasets/f", errno.EROFS), ("other/f", errno.EPERM)):
            with pytest.raises(OSError, match="Errno") as raised:
                (mount.path / path).write_bytes(b"new")
            assert raised.value.errno == number, path
        (mount.path / "ckpt/last").write_bytes(b"new")
        (mount.path / "ckpt/old").unlink()
        (mount.path / "other/new").write_bytes(b"new")
    content = {each["Key"]: each["Size"] for each in weed.client.list_objects_v2(Bucket=bucket)["Contents"]}
    assert set(content) == {"datasets/f", "ckpt/last", "other/f", "other/new"}
    assert weed.client.get_object(Bucket=bucket, Key="ckpt/last")["Body"].read() == b"new"


def test_a_file_that_changes_under_a_mount(weed: Server, work: Path) -> None:
    """`s3mountctl restart` makes what the configuration file says now count, without an unmount; a file that is
    wrong by then is told, and the mount goes on as it was.
    """
    bucket, other = weed.make_bucket(), weed.make_bucket()
    put(weed, bucket, "a", b"1")
    config = work / "x.conf"
    with mounted_by(config, reach(weed.url, bucket), work) as mount:
        text = config.read_text(encoding="utf-8")
        assert (mount.path / "a").stat().st_mode & 0o777 == 0o644
        with (mount.path / "a").open("rb", buffering=0) as file:
            config.write_text('file-mode = "0999"\n' + text, encoding="utf-8")
            refused = run_ctl("restart", mount.path)
            assert refused.returncode != 0
            assert f"{config}:1: file-mode: '0999' is not a mode" in refused.stderr
            config.write_text('file-mode = "0600"\n' + text.replace(bucket, other), encoding="utf-8")
            assert run_ctl("restart", mount.path).returncode == 0
            assert file.read() == b"1"
        wait_for_takeover(mount)
        assert os.listdir(mount.path) == ["a"]
        put(weed, bucket, "b", b"2")
        assert (mount.path / "b").stat().st_mode & 0o777 == 0o600
