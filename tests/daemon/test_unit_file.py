"""systemd/s3mount@.service: what it promises to an instance, and what it must not have."""

import configparser
import re
from pathlib import Path

import click
import pytest

from s3mount.cli.mount import main
from s3mount.daemon import background, runtime
from s3mount.daemon.exits import ExitCode

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "systemd/s3mount@.service"

#: systemd.exec(5): each of these gives the unit a mount namespace of its own, or keeps fusermount3
#: from being setuid.
HIDES_THE_MOUNT = re.compile(
    r"Protect(System|Home|KernelTunables|KernelModules|KernelLogs|ControlGroups|Proc|Hostname|Clock)|Private\w+|ProcSubset"
    r"|(ReadOnly|ReadWrite|Inaccessible|Exec|NoExec)Paths|(Bind|BindReadOnly)Paths|TemporaryFileSystem|MountFlags|MountAPIVFS"
    r"|(Root|Mount|Extension)(Directory|Image|Images|Directories)|DynamicUser|NoNewPrivileges|RestrictNamespaces"
)


@pytest.fixture(scope="module")
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    return parser


def test_it_has_its_sections(unit: configparser.ConfigParser) -> None:
    """A service that can be enabled: unit, service and install section, and no other."""
    assert unit.sections() == ["Unit", "Service", "Install"]
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_readiness_comes_from_the_daemon(unit: configparser.ConfigParser) -> None:
    """Type=notify, from the main process only, which is the command in the foreground."""
    service = unit["Service"]
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert "--foreground" in service["ExecStart"].split()


def test_an_instance_says_what_to_mount(unit: configparser.ConfigParser) -> None:
    """BUCKET, DIRECTORY and OPTIONS come from the file of the instance; only OPTIONS is split at spaces."""
    service = unit["Service"]
    assert service["EnvironmentFile"] == "/etc/s3mount/%i.env"
    assert service["ExecStart"].split()[-3:] == ["$OPTIONS", "${BUCKET}", "${DIRECTORY}"]
    assert unit["Unit"]["AssertPathExists"] == service["EnvironmentFile"]


def test_the_command_line_is_one_the_command_takes(unit: configparser.ConfigParser) -> None:
    """With the variables filled in as docs/operations.md does, click parses the line."""
    values = {
        "$OPTIONS": "--allow-other --memory-target 4096",
        "${BUCKET}": "s3://b/train/",
        "${DIRECTORY}": "/srv/data",
    }
    line = unit["Service"]["ExecStart"]
    for name, value in values.items():
        line = line.replace(name, value)
    program, *arguments = line.split()
    assert Path(program).name == "s3mount"
    context = click.Context(main)
    main.parse_args(context, arguments)
    assert context.params["foreground"]
    assert (context.params["bucket"], context.params["directory"]) == ("s3://b/train/", "/srv/data")


def test_it_starts_when_the_network_is_up(unit: configparser.ConfigParser) -> None:
    """network-online.target is wanted, not only waited for."""
    assert "network-online.target" in unit["Unit"]["After"].split()
    assert "network-online.target" in unit["Unit"]["Wants"].split()


def test_it_comes_back_and_backs_off(unit: configparser.ConfigParser) -> None:
    """A failure restarts it, for ever and ever more slowly; an unmount from outside, which is exit code 0, does not."""
    service = unit["Service"]
    assert service["Restart"] == "on-failure"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert 0 < int(service["RestartSec"]) < int(service["RestartMaxDelaySec"])
    assert int(service["RestartSteps"]) > 0


def test_it_does_not_repeat_what_cannot_succeed(unit: configparser.ConfigParser) -> None:
    """A wrong option and a missing FUSE are for a person; a bucket or network may come back."""
    given_up = {ExitCode(int(code)) for code in unit["Service"]["RestartPreventExitStatus"].split()}
    assert given_up == {ExitCode.USAGE, ExitCode.FUSE}


def test_the_daemon_has_time_to_start_and_stop(unit: configparser.ConfigParser) -> None:
    """systemd waits longer than the daemon allows itself, and signals the daemon alone first."""
    service = unit["Service"]
    assert int(service["TimeoutStartSec"]) > background.READY_TIMEOUT_S
    assert int(service["TimeoutStopSec"]) > runtime._UNMOUNT_S + runtime._GRACE_S
    assert service["KillMode"] == "mixed"


def test_the_host_sees_the_mount(unit: configparser.ConfigParser) -> None:
    """Nothing in the unit gives it a mount namespace of its own, and a comment says why."""
    assert [name for name in unit["Service"] if HIDES_THE_MOUNT.fullmatch(name)] == []
    comments = [line for line in UNIT.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert any("mount namespace" in line for line in comments)
