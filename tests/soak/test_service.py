"""The units under a systemd of their own: start, crashes, reload, watchdog and stop, as they happen on a host."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mounts import COMMAND
from tests.support.processes import KEY, REGION, SECRET, running, wait_until
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
BOX = ROOT / "tests/support/systemd_box"
CGROUPS = Path("/sys/fs/cgroup/unified")
TARGETS = (
    *("sysinit", "basic", "multi-user", "network-online", "shutdown", "time-sync", "nss-lookup", "umount"),
    *("local-fs", "final", "exit", "reboot", "poweroff", "rescue", "emergency"),
)
MOUNT = "/srv/data"
PREPARE = """#!/bin/bash
set -e
# The user of the service may not look into /root, where the interpreter can be.
mkdir -p /run/kept /run/bin
for path in {needed}; do
    case $path in /root/*) mkdir -p /run/kept/$path; mount --bind $path /run/kept/$path ;; esac
done
mount -t tmpfs -o mode=755 box /root
for path in {needed}; do
    case $path in /root/*) mkdir -p $path; mount --bind /run/kept/$path $path ;; esac
done
useradd --system --no-create-home --home-dir /nonexistent s3mount
mkdir -p /etc/s3mount {mount}
install -m 644 /run/units/data.conf /etc/s3mount/data.conf
install -m 600 /run/units/data.env /etc/s3mount/data.env
printf '#!{python}\\nfrom s3mount.mounter.privileged import main\\nmain()\\n' >/run/bin/s3mount-mount
printf '#!/bin/bash\\nexec {command} "$@"\\n' >/run/bin/s3mount
chmod 755 /run/bin/*
"""


CONFIG = """bucket = "{bucket}"
directory = "{mount}"
allow-other = true
endpoint-url = "{url}"
force-path-style = true
cache = ["/var/cache/s3mount"]
"""


class Box:
    """A systemd that runs; commands are run beside its services."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def run(self, *command: str, timeout_s: float = 120) -> str:
        """What a command says; it must succeed."""
        inside = ["nsenter", "-t", str(self._pid), "-m", "-p", "-u", "-i", "-C", "-r", "-w", *command]
        ran = subprocess.run(inside, capture_output=True, text=True, timeout=timeout_s, check=False)
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr, self.log())
        return ran.stdout

    def log(self) -> str:
        return Path(f"/proc/{self._pid}/root/run/log.txt").read_text(encoding="utf-8")

    def show(self, name: str, unit: str = "s3mount@data") -> str:
        return self.run("systemctl", "show", "-P", name, unit).strip()

    def wait(self, name: str, value: str, unit: str = "s3mount@data") -> None:
        wait_until(lambda: self.show(name, unit) == value, 120, f"{name}={value} of {unit}")

    def is_mounted(self) -> bool:
        return f" {MOUNT} " in self.run("cat", "/proc/self/mountinfo")


def units(work: Path, bucket: str, url: str) -> Path:
    """Those of the project, and what they are ordered after."""
    made = work / "units"
    made.mkdir()
    for name in TARGETS:
        (made / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    (made / "modprobe@.service").write_text("[Service]\nType=oneshot\nExecStart=/bin/true\n")
    for path in (ROOT / "systemd").glob("*.service"):
        (made / path.name).write_text(path.read_text(encoding="utf-8").replace("/usr/local/bin/", "/run/bin/"))
        drop_in = made / f"{path.name}.d" / "test.conf"
        drop_in.parent.mkdir()
        lines = [f"Environment=PYTHONPATH={ROOT}", "StandardOutput=append:/run/log.txt", "StandardError=inherit"]
        drop_in.write_text("\n".join(["[Service]", *lines, ""]))
    needed = " ".join(dict.fromkeys(map(str, (Path(sys.base_prefix).resolve(), Path(sys.prefix), ROOT))))
    facts = {"needed": needed, "mount": MOUNT, "python": sys.executable, "command": COMMAND}
    (made / "data.conf").write_text(CONFIG.format(bucket=bucket, mount=MOUNT, url=url))
    (made / "data.env").write_text(f"AWS_ACCESS_KEY_ID={KEY}\nAWS_SECRET_ACCESS_KEY={SECRET}\nAWS_REGION={REGION}\n")
    (made / "prepare").write_text(PREPARE.format(**facts))
    (made / "prepare").chmod(0o755)
    return made


@pytest.fixture
def box(weed: Server, work: Path) -> Iterator[Box]:
    """With one bucket, which nothing has been mounted of."""
    bucket = weed.make_bucket()
    for number in range(20):
        weed.client.put_object(Bucket=bucket, Key=str(number), Body=b"%d" % number)
    group = (CGROUPS if CGROUPS.exists() else CGROUPS.parent) / f"s3mount-box-{os.getpid()}"
    group.mkdir()
    enter = (
        f"echo $$ >{group}/cgroup.procs; exec unshare --pid --fork --mount --uts --ipc --cgroup --kill-child {BOX} $1"
    )
    log = work / "box.log"
    try:
        with running(["bash", "-c", enter, "bash", str(units(work, bucket, weed.url))], log) as process:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            wait_until(lambda: bool(children.read_text().split()), 30, "a namespace")
            pid = int(children.read_text().split()[0])
            wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "systemd\n", 30, "systemd")
            made = Box(pid)
            wait_until(lambda: Path(f"/proc/{pid}/root/run/systemd/private").exists(), 30, "systemd's socket")
            yield made
    finally:
        wait_until(lambda: not any(path.read_text() for path in group.rglob("cgroup.procs")), 30, "the end of the box")
        for each in sorted(group.rglob("*"), reverse=True):
            if each.is_dir():
                each.rmdir()
        group.rmdir()


def test_a_service_from_start_to_stop(box: Box) -> None:
    """It serves when it has started; daemon, mounter and a hang of it are survived; a reload is no stop; a stop leaves
    nothing mounted, also in the pause before a restart."""
    assert shutil.which("systemctl"), "install the package systemd"
    box.run("systemctl", "start", "s3mount@data")
    assert box.show("SubState") == "running"
    assert "serving s3://" in box.show("StatusText")
    assert box.run("cat", f"{MOUNT}/1") == "1"
    daemon = box.run("pgrep", "--full", "-u", "s3mount", "foreground").split()[0]
    status = box.run("cat", f"/proc/{daemon}/status")
    assert "NoNewPrivs:\t1\n" in status
    assert "CapBnd:\t0000000000000000\n" in status
    assert "Seccomp:\t2\n" in status

    box.run("kill", "-KILL", daemon)
    assert box.run("cat", f"{MOUNT}/2") == "2"
    assert box.show("NRestarts") == "0"

    box.run("kill", "-KILL", box.show("MainPID"))
    assert box.run("cat", f"{MOUNT}/3") == "3"
    box.wait("SubState", "running")
    assert box.show("NRestarts") == "1"

    box.run("systemctl", "reload", "s3mount@data")
    wait_until(lambda: "reloaded: the log is open anew" in box.log(), 60, "the reload")
    assert (box.show("SubState"), box.show("NRestarts")) == ("running", "1")
    assert box.run("cat", f"{MOUNT}/4") == "4"

    box.run("systemctl", "stop", "s3mount@data")
    assert (box.show("ActiveState"), box.show("Result")) == ("inactive", "success")
    assert not box.is_mounted()
    box.wait("ActiveState", "inactive", "s3mount-mount@data")

    box.run("systemctl", "start", "s3mount@data")
    box.run("kill", "-KILL", box.show("MainPID"))
    box.wait("SubState", "auto-restart")
    assert box.is_mounted()
    box.run("systemctl", "stop", "s3mount@data")
    box.wait("ActiveState", "inactive", "s3mount-mount@data")
    assert not box.is_mounted()
    assert box.run("ls", MOUNT) == ""


def test_a_mounter_that_hangs(box: Box) -> None:
    """The service manager's watchdog ends a mounter that is stopped, and the mount goes on."""
    box.run("mkdir", "-p", "/run/units/s3mount@.service.d")
    box.run("bash", "-c", "printf '[Service]\\nWatchdogSec=6\\n' >/run/units/s3mount@.service.d/watchdog.conf")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", "s3mount@data")
    box.run("kill", "-STOP", box.show("MainPID"))
    box.wait("NRestarts", "1")
    assert box.run("cat", f"{MOUNT}/1") == "1"
    box.wait("SubState", "running")
    box.run("systemctl", "stop", "s3mount@data")
    assert not box.is_mounted()
