"""A network that is away for a minute, as when a host sleeps or a switch restarts: nothing is refused or answered."""

import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from s3mount.units import MIB
from tests.support.content import make_content
from tests.support.mounts import mounted
from tests.support.processes import wait_until
from tests.support.proxy import Fault, Request, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(600)]

_AWAY_S = float(os.environ.get("AWAY_SECONDS", "60"))
_FILES = 16
#: Until the connections are made anew, and what was asked for has come.
_MORE_S = 60.0
READ = "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())"


class Loss:
    """A proxy's `decide`: requests hang while the network is away, and their connections are lost."""

    def __init__(self) -> None:
        self.may_pass = threading.Event()
        self.may_pass.set()
        self.lost = 0

    def __call__(self, request: Request) -> Fault | None:
        if self.may_pass.is_set():
            return None
        self.lost += 1
        self.may_pass.wait(_AWAY_S + _MORE_S)
        return Fault(drop=True)


def test_a_minute_without_a_network(weed: Server, work: Path) -> None:
    """Readers of known and of new files and a listing wait, and get what is right when the network is back; a writer's
    file is whole in S3.
    """
    bucket, loss = weed.make_bucket(), Loss()
    contents = {f"d/{number:02}": make_content(str(number), (1 + number % 3) * 9 * MIB) for number in range(_FILES)}
    for key, content in contents.items():
        weed.client.put_object(Bucket=bucket, Key=key, Body=content)
    with proxy(weed.url) as front, mounted(bucket, work, "--rw", url=front.url) as mount:
        front.decide = loss
        programs = {
            key: subprocess.Popen([sys.executable, "-c", READ, mount.path / key], stdout=subprocess.PIPE)
            for key in list(contents)[: _FILES // 2]
        }
        loss.may_pass.clear()
        programs |= {
            key: subprocess.Popen([sys.executable, "-c", READ, mount.path / key], stdout=subprocess.PIPE)
            for key in list(contents)[_FILES // 2 :]
        }
        listing = subprocess.Popen(["ls", mount.path / "d"], stdout=subprocess.PIPE)
        writer = subprocess.Popen(["dd", "if=/dev/zero", f"of={mount.path}/new", "bs=1M", "count=20"])
        wait_until(lambda: loss.lost > 0, 30, "a request that is lost")
        time.sleep(_AWAY_S)  # noqa: TID251  the network is away
        loss.may_pass.set()
        for key, program in programs.items():
            out, _ = program.communicate(timeout=_MORE_S)
            assert out.decode().strip() == hashlib.sha256(contents[key]).hexdigest(), key
        assert listing.communicate(timeout=_MORE_S)[0].split() == [key[2:].encode() for key in contents]
        assert writer.wait(_MORE_S) == 0
        assert weed.client.head_object(Bucket=bucket, Key="new")["ContentLength"] == 20 * MIB
        print(f"{loss.lost} requests were lost", *mount.warnings(), sep="\n")
        assert mount.stop() == 0
