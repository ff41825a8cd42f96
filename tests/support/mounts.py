"""Real mounts: the command as users run it, in the foreground, ended with the test."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.support.processes import KEY, REGION, SECRET, end, running, wait_until

COMMAND = str(Path(sys.executable).with_name("s3mount"))
#: For what is seen within a second, or in S3 soon after a close: the machine may be busy.
SOON_S = 30
_MOUNTER = b"s3mount/mounter/__main__.py"


def aws_environment(**extra: str) -> dict[str, str]:
    """The caller's environment without its AWS settings, with the test servers' credentials."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    clean |= {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nonexistent/config",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
        "AWS_MAX_ATTEMPTS": "4",
    }
    return clean | extra


class Mount:
    """A mount that answers.

    Attributes:
        path: the mount point.
        process: what was started: the mounter, or the daemon with --no-takeover.
        log: what is in its log file since it was started, also when it has ended.
    """

    def __init__(self, path: Path, process: subprocess.Popen[bytes], log: Path, log_start: int = 0) -> None:
        self.path = path
        self.process = process
        self._log = log
        self._log_start = log_start

    @property
    def log(self) -> str:
        return self._log.read_bytes()[self._log_start :].decode("utf-8", "replace")

    def warnings(self) -> list[str]:
        """Lines of the log at WARNING or above."""
        return [line for line in self.log.splitlines() if re.search(r" (WARNING|ERROR|CRITICAL) ", line)]

    @property
    def daemon_pid(self) -> int:
        """The process that answers the kernel."""
        return daemon_pid(self.process.pid)

    def rss_mib(self, field: str = "VmRSS") -> float:
        """Resident memory of the daemon now, or at its highest with VmHWM."""
        status = Path(f"/proc/{self.daemon_pid}/status").read_text(encoding="ascii")
        return int(status.partition(f"{field}:")[2].split()[0]) / 1024

    def kill(self) -> None:
        """kill -9 of all its processes, which are gone then; the mounter first, since it would start another daemon."""
        daemon = self.daemon_pid
        self.process.kill()
        self.process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{daemon}").exists(), 30, "the end of the daemon")

    def stop(self) -> int:
        """SIGTERM as systemd sends it; returns the exit code.  The log is whole then."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def children(pid: int) -> list[int]:
    """The daemons that a mounter has, the one that serves first.

    What a mounter has just started is the mounter by its command line, whatever it becomes: most are questions to the
    mount.
    """
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue  # it ended meanwhile
        if b"s3mount" in command and _MOUNTER not in command:
            found.append(int(child))
    return found


def daemon_pid(pid: int) -> int:
    """The daemon of a mounter, waiting for one between two; any other process without one is the daemon.

    It is of the look that found one: a daemon that cannot start is gone at the next.
    """
    found = children(pid)
    if not found and _MOUNTER in Path(f"/proc/{pid}/cmdline").read_bytes():
        found = wait_until(lambda: children(pid), 60, "a daemon")
    return found[0] if found else pid


def is_mounted(path: Path) -> bool:
    """Whether something is mounted on the path; asks the kernel's table, not the mount."""
    return f" {path} " in Path("/proc/self/mountinfo").read_text(encoding="utf-8")


@contextlib.contextmanager
def mounted(
    bucket: str,
    directory: Path,
    *flags: str,
    url: str,
    env: Mapping[str, str] | None = None,
    within: Sequence[str] = (),
) -> Iterator[Mount]:
    """`bucket` mounted on `directory`/mnt by the command in the foreground.

    Args:
        within: the beginning of a command line that becomes the rest of it.
    """
    path = directory / "mnt"
    path.mkdir(parents=True, exist_ok=True)
    log = directory / "s3mount.log"
    command = [*within, COMMAND, bucket, str(path), "--foreground", "--endpoint-url", url, "--force-path-style", *flags]
    environment = {"STATE_DIRECTORY": str(directory / "state"), **(env or aws_environment())}
    log_start = log.stat().st_size if log.exists() else 0
    with running(command, log, env=environment) as process:
        mount = Mount(path, process, log, log_start)
        try:
            wait_until(lambda: "mounted s3://" in mount.log or process.poll() is not None, 60, "mounting")
            if process.poll() is not None:
                raise RuntimeError(f"s3mount ended with {process.returncode}: {mount.log}")
            yield mount
        finally:
            clean_up(path, process)


def clean_up(path: Path, process: subprocess.Popen[bytes] | None = None) -> None:
    """Leave no mount and no process behind, also when a test failed in the middle."""
    if process is not None:
        end(process)
    while is_mounted(path):
        subprocess.run(["umount", "-l", str(path)], check=True)


def run_command(
    *arguments: str, env: Mapping[str, str] | None = None, timeout_s: float = 60
) -> subprocess.CompletedProcess[str]:
    """The command with these arguments, until it returns."""
    return subprocess.run(
        [COMMAND, *arguments],
        env=dict(env or aws_environment()),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
