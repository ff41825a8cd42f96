"""`s3mountctl debug-bundle MOUNT`: what a report of a fault needs, in one file that only its owner can read.

Versions, the processes and their command lines, what the daemon says of itself, its stacks, and the end of the log.
The stacks come from SIGUSR1, which a daemon that hangs answers, too.  Everything goes through `core.redaction`, and of
the environment nothing is taken but names, and the values of variables that are no secrets.  Keys of objects are in
it.
"""

import contextlib
import io
import json
import os
import platform
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import click
import trio

from s3mount import __version__
from s3mount.cli.client import ask
from s3mount.cli.mounts import NotThere, daemon_pid, locate, socket_path
from s3mount.core.redaction import redacted
from s3mount.fuse.mountinfo import Mounted

#: Of the environment; of any other variable whose name begins with AWS_ or S3MOUNT_ only the name is taken.
_SHOWN = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_MAX_ATTEMPTS", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE")
_PACKAGES = ("aiobotocore", "awscrt", "botocore", "cachetools", "click", "pyfuse3", "trio")
_ABOUT_PROCESS = ("status", "limits", "cgroup", "io", "wchan", "stack")
#: What a verb may take in a bundle of a daemon that hangs.
_ANSWER_S = 5.0
#: Seconds for the stacks to be written.
_STACKS_S = 1.0
_LOG_BYTES = 2_000_000
_LOG_LINES = 5_000


@click.command("debug-bundle", short_help="Collect what a report of a fault needs.")
@click.argument("mount", metavar="MOUNT", type=str)
@click.option("-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="[default: here, by the time]")
def debug_bundle(mount: str, output: str | None) -> None:
    """Collect versions, options, figures, stacks and the end of the log of a MOUNT in one file (tar.gz, mode 0600).

    No credentials are in it; keys of objects are.  Look at it before you send it.
    """
    found, _ = locate(mount)
    name = f"s3mount-{time.strftime('%Y%m%d-%H%M%S')}"
    path = Path(output or f"{name}.tar.gz")
    pids = _processes(found)
    secrets = [value for pid in pids for value in _environment(pid).values() if value]
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be made: {error.strerror}") from error
    with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as bundle:
        for member, text in _members(found, pids):
            content = redacted(text, secrets).encode("utf-8", "backslashreplace")
            entry = tarfile.TarInfo(f"{name}/{member}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            bundle.addfile(entry, io.BytesIO(content))
    click.echo(f"{path}: no credentials are in it, keys of objects are; look at it before you send it")


def _members(found: Mounted, pids: list[int]) -> Iterator[tuple[str, str]]:
    yield "versions.txt", _versions()
    yield "mount.txt", f"{found}\n{Path('/proc/self/mountinfo').read_text(encoding='utf-8', errors='replace')}"
    for pid in pids:
        yield f"process-{pid}.txt", _about(pid)
    for verb in ("status", "stats", "cache"):
        yield f"{verb}.json", _said(found, verb)
    if pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pids[0], signal.SIGUSR1)
            trio.run(trio.sleep, _STACKS_S)
    yield "log.txt", _log(pids)


def _processes(found: Mounted) -> list[int]:
    """The daemon, then its mounter and the standby, as far as they can be found; a daemon that hangs, too."""
    daemon = daemon_pid(found)
    if daemon is None:
        return []
    with contextlib.suppress(ValueError, IndexError):  # it ended meanwhile
        mounter = int(_read(f"/proc/{daemon}/stat").rpartition(")")[2].split()[1])
        if "s3mount/mounter" in _read(f"/proc/{mounter}/cmdline"):
            others = [int(pid) for pid in _read(f"/proc/{mounter}/task/{mounter}/children").split()]
            return [daemon, mounter, *(pid for pid in others if pid != daemon)]
    return [daemon]


def _environment(pid: int) -> dict[str, str]:
    """The variables that matter; the value of each that may be a secret stays here."""
    pairs = (pair.partition("=") for pair in _read(f"/proc/{pid}/environ").split("\0"))
    return {name: value for name, _, value in pairs if name.startswith(("AWS_", "S3MOUNT_")) and name not in _SHOWN}


def _versions() -> str:
    lines = [f"s3mount {__version__}", f"Python {platform.python_version()}", platform.platform()]
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            lines.append(f"{package} {metadata.version(package)}")
    return "\n".join([*lines, _read("/etc/os-release"), _read("/proc/meminfo")])


def _about(pid: int) -> str:
    command = " ".join(_read(f"/proc/{pid}/cmdline").split("\0"))
    shown = [f"{pair}\n" for pair in _read(f"/proc/{pid}/environ").split("\0") if pair.partition("=")[0] in _SHOWN]
    hidden = [f"{name} is set\n" for name in _environment(pid)]
    parts = [f"== {name}\n{_read(f'/proc/{pid}/{name}')}\n" for name in _ABOUT_PROCESS]
    return "".join([f"{command}\n", *shown, *hidden, *parts])


def _said(found: Mounted, verb: str) -> str:
    try:
        return "\n".join(json.dumps(event) for event in ask(socket_path(found), verb, {}, silence_s=_ANSWER_S))
    except NotThere as error:
        return error.message


def _log(pids: list[int]) -> str:
    """The end of the log: the file that standard error is, or that is open; else the journal's."""
    for pid in pids:
        for link in sorted(Path(f"/proc/{pid}/fd").glob("*"), key=lambda link: link.name != "2"):
            with contextlib.suppress(OSError):
                target = Path(os.readlink(link))
                if (
                    target.is_file()
                    and (link.name == "2" or target.name.startswith("s3mount-"))
                    and target.suffix != ".sock"
                ):
                    return _end_of(target)
    command = ["journalctl", "--no-pager", f"--lines={_LOG_LINES}", *(f"_PID={pid}" for pid in pids)]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30).stdout
    return "the log was not found\n"


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_BYTES))
        return file.read().decode("utf-8", "backslashreplace")


def _read(path: str) -> str:
    """What a file of the kernel's says, or why not."""
    try:
        return Path(path).read_bytes().decode("utf-8", "backslashreplace")
    except OSError as error:
        return f"{path}: {error.strerror}"
