"""systemd/*.service: what they promise to an instance, what they must have, and what they must not have."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from s3mount.daemon import background, runtime
from s3mount.daemon.exits import ExitCode
from s3mount.daemon.writing import FINISH_S
from s3mount.fuse import mountservice
from s3mount.mounter import privileged

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "systemd"
#: systemd.exec(5): each of these gives the unit a mount namespace of its own.
HIDES_THE_MOUNT = re.compile(
    r"Protect(System|Home|KernelTunables|KernelModules|KernelLogs|ControlGroups|Proc|Hostname|Clock)|Private\w+|ProcSubset"
    r"|(ReadOnly|ReadWrite|Inaccessible|Exec|NoExec)Paths|(Bind|BindReadOnly)Paths|TemporaryFileSystem|MountFlags|MountAPIVFS"
    r"|(Root|Mount|Extension)(Directory|Image|Images|Directories)|DynamicUser|RestrictNamespaces"
    r"|(State|Cache|Logs|Runtime|Configuration)Directory|LoadCredential"
)


class Unit(dict[str, list[str]]):
    """A unit file: the values of each key, which may stand there several times."""

    def __init__(self, name: str) -> None:
        for line in (UNITS / name).read_text(encoding="utf-8").splitlines():
            if line and not line.startswith(("#", "[")):
                key, _, value = line.partition("=")
                self.setdefault(key, []).append(value)

    def one(self, key: str) -> str:
        (value,) = self[key]
        return value


@pytest.fixture(scope="module")
def service() -> Unit:
    return Unit("s3mount@.service")


@pytest.fixture(scope="module")
def mounting() -> Unit:
    return Unit("s3mount-mount@.service")


@pytest.fixture(scope="module")
def user() -> Unit:
    return Unit("s3mount-user@.service")


def test_they_can_be_enabled(service: Unit, mounting: Unit, user: Unit) -> None:
    """The host's and the user's service can start by themselves; the privileged half starts with its service."""
    assert service.one("WantedBy") == "multi-user.target"
    assert user.one("WantedBy") == "default.target"
    assert "WantedBy" not in mounting


def test_readiness_comes_from_the_main_process(service: Unit, mounting: Unit, user: Unit) -> None:
    """Type=notify, from the main process only, which is the command in the foreground."""
    for unit in (service, mounting, user):
        assert (unit.one("Type"), unit.one("NotifyAccess")) == ("notify", "main")
    for unit in (service, user):
        assert "--foreground" in unit.one("ExecStart").split()


def test_an_instance_is_a_configuration_file(service: Unit, mounting: Unit, user: Unit) -> None:
    """NAME.conf says what to mount; secrets are in NAME.env, which only systemd need read."""
    assert service.one("ExecStart").split()[1:3] == ["--config", "%i"]
    assert service.one("AssertPathExists") == mounting.one("AssertPathExists") == "/etc/s3mount/%i.conf"
    assert Path(service.one("AssertPathExists")).parent == privileged.CONFIG_DIRECTORY
    assert service.one("EnvironmentFile") == "-/etc/s3mount/%i.env"
    assert user.one("ExecStart").split()[1:3] == ["--config", user.one("AssertPathExists")]


def test_the_halves_find_each_other(service: Unit, mounting: Unit) -> None:
    """The service needs the privileged half, asks at its socket, and the half ends after it."""
    assert service.one("Requires") == "s3mount-mount@%i.service"
    assert "s3mount-mount@%i.service" in service.one("After").split()
    address = f"{mountservice.ADDRESS}={privileged.SOCKET_DIRECTORY}/%i.sock"
    assert service.one("Environment") == address
    assert mounting.one("StopWhenUnneeded") == "yes"
    assert mounting.one("ExecStart").split()[1:] == ["serve", "%i"]
    assert mounting.one("ExecStopPost").split()[1:] == ["clear", "%i"]


def test_it_starts_when_the_network_is_up(service: Unit) -> None:
    """network-online.target is wanted, not only waited for; and so is the file system of the cache."""
    assert "network-online.target" in service.one("After").split()
    assert "network-online.target" in service.one("Wants").split()
    directories = f"/var/cache/{service.one('CacheDirectory')} /var/lib/{service.one('StateDirectory')}"
    assert service.one("RequiresMountsFor") == directories


def test_it_comes_back_and_backs_off(service: Unit) -> None:
    """A failure restarts it, for ever and ever more slowly; an unmount from outside, which is exit code 0, does not."""
    assert service.one("Restart") == "on-failure"
    assert service.one("StartLimitIntervalSec") == "0"
    back_off = Unit("s3mount@.service.d/back-off.conf")
    assert 0 < int(service.one("RestartSec")) < int(back_off.one("RestartMaxDelaySec"))
    assert int(back_off.one("RestartSteps")) > 0


def test_it_does_not_repeat_what_cannot_succeed(service: Unit) -> None:
    """A wrong option, a missing FUSE and what was not saved are for a person; a bucket or network may come back."""
    given_up = {ExitCode(int(code)) for code in service.one("RestartPreventExitStatus").split()}
    assert given_up == {ExitCode.USAGE, ExitCode.FUSE, ExitCode.NOT_SAVED}


def test_the_daemon_has_time_to_start_and_stop(service: Unit) -> None:
    """systemd waits longer than the daemon allows itself, uploads included, and signals the daemon alone first."""
    assert int(service.one("TimeoutStartSec")) > background.READY_TIMEOUT_S
    needed_s = runtime._UNMOUNT_S + FINISH_S + runtime._GRACE_S + runtime._END_S
    assert int(service.one("TimeoutStopSec")) > needed_s
    assert service.one("TimeoutStopSec") == Unit("s3mount-user@.service").one("TimeoutStopSec")
    assert service.one("KillMode") == "mixed"


def test_the_mounter_heals_before_systemd_does(service: Unit) -> None:
    """Three hangs in a row, of 30 s and what a replacement takes, are over before the service counts as hung."""
    assert int(service.one("WatchdogSec")) > 3 * (30 + 5)


def test_the_host_sees_the_mount(mounting: Unit, user: Unit) -> None:
    """Nothing in the units that mount gives them a mount namespace of their own, and a comment says why."""
    for name, unit in (("s3mount-mount@.service", mounting), ("s3mount-user@.service", user)):
        assert [key for key in unit if HIDES_THE_MOUNT.fullmatch(key)] == []
        comments = [line for line in (UNITS / name).read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        assert any("mount namespace" in line for line in comments)
    assert "NoNewPrivileges" not in user, "fusermount3 is setuid root"


def test_what_memory_it_may_have(service: Unit) -> None:
    """Room for the largest default of --memory-target, the index of the cache and a standby; and no core is dumped."""
    assert (service.one("MemoryHigh"), service.one("MemoryMax")) == ("5G", "6G")
    assert service.one("LimitCORE") == "0"


@pytest.mark.parametrize("name", ["s3mount@", "s3mount-mount@", "s3mount-user@"])
def test_systemd_understands_them(name: str, work: Path) -> None:
    """`systemd-analyze verify` has nothing to say, of any of them."""
    for path in UNITS.glob("*.service"):
        text = path.read_text(encoding="utf-8")
        (work / path.name).write_text(re.sub(r"/usr/local/bin/s3mount[a-z-]*", shutil.which("true") or "", text))
    of_whom = ["--user"] if name == "s3mount-user@" else []
    command = ["systemd-analyze", "verify", "--man=no", *of_whom, f"./{name}x.service"]
    environment = {
        "XDG_RUNTIME_DIR": str(work),
        "HOME": str(work),
        "PATH": "/usr/bin:/bin",
        "SYSTEMD_UNIT_PATH": f"{work}:",
    }
    result = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    ours = [line for line in (result.stdout + result.stderr).splitlines() if "s3mount" in line]
    assert (result.returncode, ours) == (0, [])


def test_the_service_is_confined(work: Path) -> None:
    """`systemd-analyze security` gives the unit that meets network and programs at most 3.0 of 10."""
    shutil.copy(UNITS / "s3mount@.service", work / "s3mount@x.service")
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=30", "./s3mount@x.service"]
    result = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    assert "Overall exposure level" in result.stdout
    assert result.returncode == 0, result.stdout
