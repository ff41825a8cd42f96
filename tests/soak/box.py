"""A systemd of a test's own, with the project's units: nothing outside its box can be written or unmounted by it.

`systemd_box` says how; what is made here is what is in it: units, configuration, users and commands.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.mounts import COMMAND
from tests.support.processes import KEY, REGION, SECRET, running, wait_until
from tests.support.servers import Server

ROOT = Path(__file__).parents[2]
BOX = ROOT / "tests/support/systemd_box"
CGROUPS = Path("/sys/fs/cgroup/unified")
TARGETS = (
    *("sysinit", "basic", "multi-user", "network-online", "shutdown", "time-sync", "nss-lookup", "umount"),
    *("local-fs", "remote-fs", "final", "exit", "reboot", "poweroff", "rescue", "emergency", "default"),
)
MOUNT = "/srv/data"
#: An ordinary user's home and mount, and the line of fstab.
HOME, USERS_MOUNT, AUTOMOUNT = "/srv/home", "/srv/home/data", "/srv/auto"
USER = 4321
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
mkdir -p /etc/s3mount {mount} {automount} /root/.aws
install -m 644 /run/units/data.conf /etc/s3mount/data.conf
install -m 600 /run/units/data.env /etc/s3mount/data.env
install -m 600 /run/units/credentials /root/.aws/credentials
cp /run/units/fstab /etc/fstab

useradd --uid {user} --home-dir {home} --create-home somebody
install -d -o somebody -m 700 /run/user/{user} {home}/.config {home}/.config/s3mount {users_mount}
install -o somebody -m 600 /run/units/user.conf {home}/.config/s3mount/data.conf
install -o somebody -m 600 /run/units/data.env {home}/.config/s3mount/data.env
install -o somebody -m 666 /dev/null /run/log.txt

# mount(8) looks for helpers in /sbin only.
mkdir /run/sbin /run/sbin.work
mount -t overlay -o lowerdir={sbin},upperdir=/run/sbin,workdir=/run/sbin.work sbin {sbin}
printf '#!{python}\\nfrom s3mount.mounter.privileged import main\\nmain()\\n' >/run/bin/s3mount-mount
printf '#!/bin/bash\\nexec {command} "$@"\\n' >/run/bin/s3mount
chmod 755 /run/bin/*
install -m 755 /run/units/helper {sbin}/mount.fuse.s3mount
"""


CONFIG = """bucket = "{bucket}"
directory = "{mount}"
allow-other = true
endpoint-url = "{url}"
force-path-style = true
cache = ["/var/cache/s3mount"]
"""
USERS_CONFIG = """bucket = "{bucket}"
directory = "{mount}"
endpoint-url = "{url}"
force-path-style = true
"""
FSTAB = (
    "{bucket} {mount} fuse.s3mount _netdev,nofail,ro,x-systemd.automount,x-systemd.idle-timeout=2,"
    "endpoint-url={url},force_path_style,region=us-east-1,no-log 0 0\n"
)


HELPER = """#!/bin/bash
export PYTHONPATH={root}
exec {python} -c 'from s3mount.cli.entry import mount_helper; mount_helper()' "$@"
"""
#: Of the user, as the service user@UID of a host starts it.
MANAGER = """[Service]
Type=notify
User={user}
Environment=XDG_RUNTIME_DIR=/run/user/{user} SYSTEMD_UNIT_PATH=/run/units SYSTEMD_GENERATOR_PATH=/nonexistent
ExecStart=/lib/systemd/systemd --user
Delegate=yes
StandardOutput=append:/run/log.txt
StandardError=inherit
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

    def run_as_user(self, *command: str) -> str:
        """The same, by the ordinary user."""
        environment = f"XDG_RUNTIME_DIR=/run/user/{USER}"
        return self.run("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "env", environment, *command)

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
    facts = {
        "needed": needed, "mount": MOUNT, "python": sys.executable, "command": COMMAND, "user": USER, "home": HOME,
        "users_mount": USERS_MOUNT, "automount": AUTOMOUNT, "sbin": Path("/sbin").resolve(),
    }  # fmt: skip
    (made / "data.conf").write_text(CONFIG.format(bucket=bucket, mount=MOUNT, url=url))
    (made / "user.conf").write_text(USERS_CONFIG.format(bucket=bucket, mount=USERS_MOUNT, url=url))
    (made / "fstab").write_text(FSTAB.format(bucket=bucket, mount=AUTOMOUNT, url=url))
    (made / "credentials").write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    (made / "manager.service").write_text(MANAGER.format(user=USER))
    (made / "data.env").write_text(f"AWS_ACCESS_KEY_ID={KEY}\nAWS_SECRET_ACCESS_KEY={SECRET}\nAWS_REGION={REGION}\n")
    (made / "helper").write_text(HELPER.format(root=ROOT, python=sys.executable))
    (made / "prepare").write_text(PREPARE.format(**facts))
    (made / "prepare").chmod(0o755)
    return made


def is_inhabited(group: Path) -> bool:
    """Whether a process is in a control group or below; what systemd removes meanwhile has none."""
    for path in group.rglob("cgroup.procs"):
        with suppress(OSError):
            if path.read_text():
                return True
    return False


@contextmanager
def boxed(weed: Server, work: Path) -> Iterator[Box]:
    """With one bucket of 20 files, which nothing has been mounted of."""
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
        wait_until(lambda: not is_inhabited(group), 60, "the end of the box")
        for each in sorted(group.rglob("*"), reverse=True):
            if each.is_dir():
                each.rmdir()
        group.rmdir()
