"""s3mountctl debug-bundle: what is in it, who may read it, and what must not be in it."""

import os
import signal
import tarfile
from pathlib import Path

import pytest

from tests.support.ctl import run_ctl
from tests.support.mounts import aws_environment, mounted
from tests.support.processes import KEY, SECRET
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]


def members(path: Path) -> dict[str, str]:
    with tarfile.open(path) as bundle:
        entries = {each.name.partition("/")[2]: bundle.extractfile(each) for each in bundle.getmembers()}
        return {name: file.read().decode() for name, file in entries.items() if file is not None}


@pytest.mark.parametrize("is_stopped", [False, True], ids=["serves", "stopped"])
def test_a_bundle(weed: Server, work: Path, is_stopped: bool) -> None:  # noqa: FBT001
    """Versions, processes, figures, stacks and log in a file of mode 0600, of a daemon that hangs, too; no secret."""
    token = "a-session-token-that-nobody-asks-for"
    env = aws_environment(AWS_UNKNOWN_SECRET=token)
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="a", Body=b"one")
    bundle = work / "bundle.tar.gz"
    flags = ("--debug", "--hang-timeout", "0")
    with mounted(bucket, work, *flags, url=weed.url, env=env) as mount:
        assert (mount.path / "a").read_bytes() == b"one"
        daemon = mount.daemon_pid
        if is_stopped:
            os.kill(daemon, signal.SIGSTOP)
        ran = run_ctl("debug-bundle", mount.path, "-o", bundle)
        os.kill(daemon, signal.SIGCONT)
        assert ran.returncode == 0, ran.stderr
        assert bundle.stat().st_mode & 0o777 == 0o600
        found = members(bundle)
        assert run_ctl("debug-bundle", mount.path, "-o", bundle).returncode != 0, "it replaced a file"
    assert {"versions.txt", "mount.txt", "status.json", "log.txt", f"process-{daemon}.txt"} <= set(found)
    assert f"process-{mount.process.pid}.txt" in found
    assert "pyfuse3" in found["versions.txt"]
    assert "--debug" in found[f"process-{daemon}.txt"]
    assert "AWS_SECRET_ACCESS_KEY is set" in found[f"process-{daemon}.txt"]
    assert "mounted s3://" in found["log.txt"]
    if not is_stopped:
        assert '"pid"' in found["status.json"]
        assert "Current thread" in found["log.txt"]
    everything = "".join(found.values())
    assert [secret for secret in (KEY, SECRET, token) if secret in everything] == []
