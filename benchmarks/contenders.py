"""Mounts to compare: ours and Debian's s3fs, with the same server, options as their manuals advise."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.mounts import aws_environment, clean_up, is_mounted, mounted
from tests.support.processes import KEY, SECRET, running, wait_until

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Contender:
    """A mount that answers, and its daemon."""

    name: str
    path: Path
    pid: int

    def cpu_s(self) -> float:
        """CPU seconds the daemon used so far, in all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def rss_mib(self, field: str = "VmRSS") -> float:
        """Resident memory of the daemon now, or at its highest with VmHWM."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return int(status.partition(f"{field}:")[2].split()[0]) / 1024


@contextlib.contextmanager
def s3mount(bucket: str, url: str, directory: Path, *flags: str, ca: str | None = None) -> Iterator[Contender]:
    """Ours, with default options."""
    trust = ("--ca-bundle", ca) if ca else ()
    with mounted(bucket, directory, *flags, *trust, url=url, env=aws_environment(AWS_MAX_ATTEMPTS="10")) as mount:
        yield Contender("s3mount", mount.path, mount.daemon_pid)


@contextlib.contextmanager
def s3mount_ttl(bucket: str, url: str, directory: Path, ca: str | None = None) -> Iterator[Contender]:
    """Ours on a bucket that nobody changes meanwhile."""
    with s3mount(bucket, url, directory, "--metadata-ttl", "indefinite", ca=ca) as mount:
        yield replace(mount, name="s3mount --metadata-ttl indefinite")


@contextlib.contextmanager
def s3fs(
    bucket: str, url: str, directory: Path, *tuning: str, ca: str | None = None, mode: str = "ro"
) -> Iterator[Contender]:
    """s3fs-fuse as Debian ships it, with default options."""
    path = directory / "mnt"
    path.mkdir(parents=True)
    secret = directory / "passwd"
    secret.touch(mode=0o600)
    secret.write_text(f"{KEY}:{SECRET}", encoding="ascii")
    trust = ("no_check_certificate", "ssl_verify_hostname=0") if ca else ()
    options = ",".join([f"url={url}", "use_path_request_style", f"passwd_file={secret}", mode, *trust, *tuning])
    with running(["s3fs", bucket, str(path), "-f", "-o", options], directory / "s3fs.log") as process:
        try:
            wait_until(lambda: is_mounted(path), 30, "s3fs mounting")
            yield Contender("s3fs tuned" if tuning else "s3fs", path, process.pid)
        finally:
            clean_up(path, process)


@contextlib.contextmanager
def s3fs_tuned(bucket: str, url: str, directory: Path, ca: str | None = None) -> Iterator[Contender]:
    """s3fs-fuse with as many and as large parallel ranges as a mount of ours reads ahead."""
    with s3fs(bucket, url, directory, "parallel_count=16", "multipart_size=8", ca=ca) as mount:
        yield mount
