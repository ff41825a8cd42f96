"""The units under a systemd of their own: start, crashes, reload, watchdog and stop, as they happen on a host."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.box import AUTOMOUNT, MOUNT, ROOT, USER, USERS_MOUNT, Box, boxed
from tests.support.processes import wait_until
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.fixture
def box(weed: Server, work: Path) -> Iterator[Box]:
    """With one bucket, which nothing has been mounted of."""
    assert shutil.which("systemctl"), "install the package systemd"
    with boxed(weed, work) as made:
        yield made


def test_a_service_from_start_to_stop(box: Box) -> None:
    """It serves when it has started; daemon, mounter and a hang of it are survived; a reload is no stop; a stop leaves
    nothing mounted, also in the pause before a restart."""
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


def test_a_mount_in_a_scope_of_its_own(box: Box) -> None:
    """A mount that a step starts by systemd-run --scope lives on when all of the step is killed, and is gone, with all
    its processes, when its scope is stopped.
    """
    mount = ["env", f"PYTHONPATH={ROOT}", "HOME=/root", "/run/bin/s3mount", "--config", "data"]
    step = f"systemd-run --quiet --scope --unit=data {shlex.join(mount)} && exec sleep infinity"
    box.run("systemd-run", "--quiet", "--unit=step", "bash", "-c", step)
    wait_until(box.is_mounted, 60, "the mount")
    assert box.run("cat", f"{MOUNT}/1") == "1"
    (mounter,) = box.run("pgrep", "--full", "s3mount/mounter").split()
    assert box.run("cat", f"/proc/{mounter}/cgroup").strip().endswith("/data.scope")

    box.run("systemctl", "kill", "--signal=KILL", "step")
    box.wait("ActiveState", "failed", "step")
    assert box.run("cat", f"{MOUNT}/2") == "2"

    box.run("systemctl", "stop", "data.scope")
    assert not box.is_mounted()
    assert box.show("ActiveState", "data.scope") == "inactive"
    assert box.run("bash", "-c", "pgrep --count --full [s]3mount/mounter || true").strip() == "0"
    assert box.run("ls", MOUNT) == ""


def test_a_users_service(box: Box) -> None:
    """Under a user's service manager, without privileges: it serves, its daemon and its mounter are survived, a reload
    is no stop, and a stop leaves nothing mounted; what a crash left is cleared by the next start.
    """
    unit = "s3mount-user@data"

    def systemctl(*arguments: str) -> str:
        return box.run_as_user("systemctl", "--user", *arguments)

    def show(name: str) -> str:
        return systemctl("show", "-P", name, unit).strip()

    def read(name: str) -> str:
        return box.run_as_user("cat", f"{USERS_MOUNT}/{name}")

    box.run("systemctl", "start", "manager")
    systemctl("start", unit)
    assert show("SubState") == "running"
    assert "serving s3://" in show("StatusText")
    assert read("1") == "1"
    assert f" {USERS_MOUNT} " in box.run("cat", "/proc/self/mountinfo")

    box.run("kill", "-KILL", box.run("pgrep", "--full", "-u", str(USER), "foreground").split()[0])
    assert read("2") == "2"
    assert show("NRestarts") == "0"

    box.run("kill", "-KILL", show("MainPID"))
    assert read("3") == "3"
    wait_until(lambda: (show("SubState"), show("NRestarts")) == ("running", "1"), 60, "a restart")

    systemctl("reload", unit)
    wait_until(lambda: "reloaded: the log is open anew" in box.log(), 60, "the reload")
    assert (show("SubState"), show("NRestarts")) == ("running", "1")

    systemctl("stop", unit)
    assert (show("ActiveState"), show("Result")) == ("inactive", "success")
    assert f" {USERS_MOUNT} " not in box.run("cat", "/proc/self/mountinfo")

    systemctl("start", unit)
    box.run("kill", "-KILL", show("MainPID"))
    wait_until(lambda: show("SubState") == "auto-restart", 60, "the pause")
    systemctl("stop", unit)
    systemctl("start", unit)
    assert read("4") == "4"
    systemctl("stop", unit)
    assert f" {USERS_MOUNT} " not in box.run("cat", "/proc/self/mountinfo")


def test_an_automount_of_fstab(box: Box) -> None:
    """A line of fstab with x-systemd.automount is mounted by the first access, unmounted when nobody uses it, and
    mounted again.
    """
    box.run("mkdir", "/run/generated")
    box.run("/lib/systemd/system-generators/systemd-fstab-generator", *["/run/generated"] * 3)
    box.run("bash", "-c", "cp /run/generated/srv-auto.* /run/units/")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", "srv-auto.automount")
    assert box.show("ActiveState", "srv-auto.mount") == "inactive"
    for name in ("1", "2"):
        assert box.run("cat", f"{AUTOMOUNT}/{name}") == name
        assert box.show("ActiveState", "srv-auto.mount") == "active"
        box.wait("ActiveState", "inactive", "srv-auto.mount")
    assert "fuse.s3mount" not in box.run("cat", "/proc/self/mountinfo")
    left = ("bash", "-c", "pgrep --count --full [s]3mount/mounter || true")
    wait_until(lambda: box.run(*left).strip() == "0", 30, "the end of its processes")
