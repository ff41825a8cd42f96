"""What the kernel is told of a mount: how far it reads ahead, and how much it may have in flight."""

import subprocess
import threading
from pathlib import Path

import pytest

from s3mount.daemon import mountpoint
from tests.mount import readers
from tests.mount.scripted import ScriptedBucket
from tests.support.mounts import Mount, mounted
from tests.support.namespaces import in_namespace
from tests.support.processes import wait_until
from tests.support.proxy import Fault, Request, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

_IN_FLIGHT = 1000


def _device(mount: Mount) -> str:
    found = mountpoint.mounted_on(str(mount.path))
    assert found is not None
    return found.device


def _read_ahead_kib(mount: Mount) -> int:
    return int(Path(f"/sys/class/bdi/{_device(mount)}/read_ahead_kb").read_text(encoding="ascii"))


def _connection(mount: Mount, *names: str) -> list[int]:
    """The kernel's own numbers of a mount (fusectl)."""
    directory = "/sys/fs/fuse/connections"
    script = f"mount -t fusectl fusectl {directory}; cd {directory}/{_device(mount).partition(':')[2]}; cat "
    result = in_namespace(script + " ".join(names))
    assert result.returncode == 0, result.stderr
    return [int(number) for number in result.stdout.split()]


@pytest.mark.parametrize(
    ("flags", "kib"),
    [
        ([], 1024),
        (["--read-ahead-kib", "128"], 128),
        (["--read-ahead-kib", "16384"], 16384),
        (["--no-kernel-tuning"], 128),
    ],
    ids=["default", "128", "most", "none"],
)
def test_read_ahead(weed: Server, work: Path, flags: list[str], kib: int) -> None:
    """As root the kernel reads ahead 1 MiB, or what --read-ahead-kib says; with --no-kernel-tuning its own 128 KiB."""
    with mounted(weed.make_bucket(), work, *flags, url=weed.url) as mount:
        assert _read_ahead_kib(mount) == kib
        assert mount.warnings() == []


def test_as_many_in_the_background_as_connections(weed: Server, work: Path) -> None:
    """With more than 256 connections the kernel may have a buffered read in flight for each."""
    with mounted(weed.make_bucket(), work, "--maximum-throughput-gbps", "200", url=weed.url) as mount:
        assert _connection(mount, "max_background", "congestion_threshold") == [500, 375]


def test_a_thousand_opens_at_once(weed: Server, work: Path) -> None:
    """While S3 answers none of 1,000 opens, all of them wait in the daemon, and other calls are answered."""
    files = {f"{number:04}": 4096 for number in range(_IN_FLIGHT)}
    bucket = ScriptedBucket(files)
    release = threading.Event()

    def hold(request: Request) -> Fault | None:
        if request.method == "GET" and not request.is_list:
            release.wait(200)
        return bucket.decide(request)

    with proxy(weed.url) as front:
        front.decide = hold
        with mounted(weed.make_bucket(), work, "--metadata-ttl", "indefinite", url=front.url) as mount:
            assert len(list(mount.path.iterdir())) == len(files)
            reader = readers.start("read_each_at", "0", *(mount.path / key for key in files))
            try:
                wait_until(lambda: _connection(mount, "waiting") >= [_IN_FLIGHT], 150, "1,000 opens in flight")
                subprocess.run(["stat", "-f", str(mount.path)], check=True, capture_output=True, timeout=60)
                assert (
                    subprocess.run(["test", "-e", str(mount.path / "absent")], check=False, timeout=60).returncode == 1
                )
            finally:
                release.set()
            assert readers.answer(reader) == [4096] * _IN_FLIGHT
            assert mount.warnings() == []
