"""`s3mountctl doctor`: everything that a mount needs of this host and of its bucket, examined one by one.

Each part says what it found, and what to do.  One that cannot go on ends its own part and no other.  Nothing is
mounted, and nothing stays changed: not in the bucket, not on the disks.
"""

import os
import platform
import re
import resource
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import trio

from s3mount.cache.access import Access
from s3mount.config import MountConfig
from s3mount.core.findings import Finding, bad, good, weak
from s3mount.daemon import exits, mountpoint
from s3mount.errors import S3MountError, sole_cause
from s3mount.fuse.options import FuseConfig
from s3mount.limits import this_host
from s3mount.store.checkup import Checkup, checkup, credential_source
from s3mount.units import GIB, MIB, format_size

Tell = Callable[[Finding], None]

#: Linux that sends a new daemon the calls of a dead one (FUSE_NOTIFY_RESEND).
_RESENDS = (6, 9)
#: Seconds of difference with which S3 refuses requests (RequestTimeTooSkewed): 15 minutes.  Half of it is a clock that
#: nobody keeps right.
_SKEW_S, _SKEWED_S = 450.0, 900.0
#: A connection to S3 gives about 90 MB/s, and a cache is to be faster than several.
_SLOW_DISK = 300 * MIB
_SAMPLE = 64 * MIB
_FUSECTL = Path("/sys/fs/fuse/connections")
_BDI = Path("/sys/class/bdi")


async def examine(config: MountConfig, tell: Tell, *, may_write: bool) -> None:
    """Tell every finding, the host's first.

    Args:
        may_write: begin an upload, and abort it.
    """
    for finding in (*host_findings(config.fuse), *size_findings(config)):
        tell(finding)
    if config.cache is not None:
        for directory in config.cache.directories:
            tell(await trio.to_thread.run_sync(disk_finding, directory, config.cache.group))
    await examine_bucket(config, tell, may_write=may_write)


def host_findings(fuse: FuseConfig) -> Iterator[Finding]:
    """FUSE, and what the kernel can do."""
    try:
        mountpoint.check_fuse(fuse)
        yield good("fuse", "this user can mount")
    except S3MountError as error:
        message, _, fix = str(error).partition(": ")
        yield bad("fuse", message, fix)
    release = platform.release()
    numbers = tuple(int(number) for number in re.findall("[0-9]+", release)[:2])
    if numbers >= _RESENDS:
        yield good("kernel", f"Linux {release}: calls in flight outlive a daemon")
    else:
        fix = "Linux 6.9 or later answers them; nothing else is lost"
        yield weak("kernel", f"Linux {release}: calls in flight fail when a daemon dies", fix)
    is_tuned = os.access(_BDI, os.W_OK) and os.geteuid() == 0 and os.statvfs("/sys").f_flag & os.ST_RDONLY == 0
    if is_tuned:
        yield good("read-ahead", "the kernel's read-ahead can be set")
    else:
        fix = "mount as root or by the service s3mount@; or see 'Read-ahead' of docs/operations.md"
        yield weak("read-ahead", "the kernel reads ahead 128 KiB at a time, and this user may not change it", fix)
    if os.geteuid() == 0 or _FUSECTL.is_mount():
        yield good("abort", "a mount that hangs can be aborted")
    else:
        yield weak("abort", "this user cannot abort a mount that hangs", f"mount -t fusectl fusectl {_FUSECTL}")


def size_findings(config: MountConfig) -> Iterator[Finding]:
    """Memory and descriptors."""
    memory, target = this_host().memory_bytes, config.read.memory_target
    told = f"the memory target is {format_size(target)}, and {format_size(memory)} may be used"
    if target + GIB // 2 > memory:
        yield weak("memory", told, "lower --memory-target, or raise the limit of the control group (MemoryMax=)")
    else:
        yield good("memory", told)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = config.crt.connections * 2 + 256
    if limit < wanted:
        yield weak("descriptors", f"{limit} files may be open", f"ulimit -n {wanted}, or LimitNOFILE= of the unit")
    else:
        yield good("descriptors", f"{limit} files may be open")


def disk_finding(directory: Path, group: int | None) -> Finding:
    """Whether a directory can be a cache, and how fast its disk is.  Blocks."""
    subject = f"cache {directory}"
    try:
        access = Access(directory, group)
        access.check_member()
        if not directory.exists():
            return weak(subject, "it does not exist", "mounting makes it; make it before, to have its disk examined")
        access.check(str(directory))
        written_s, read_s = _time_disk(directory)
    except S3MountError as error:
        message, _, fix = str(error).rpartition("; ")
        return bad(subject, message, fix)
    except OSError as error:
        return bad(subject, f"it cannot be written: {error.strerror}", "make room, or name another disk")
    told = f"writes {format_size(int(_SAMPLE / written_s))}/s, reads {format_size(int(_SAMPLE / read_s))}/s"
    if _SAMPLE / max(written_s, read_s) < _SLOW_DISK:
        return weak(subject, told, "S3 may be as fast: use a local NVMe disk, several of them, or no cache")
    return good(subject, told)


def _time_disk(directory: Path) -> tuple[float, float]:
    """Seconds to write and to read `_SAMPLE` bytes, past the page cache as far as the kernel lets it."""
    path = directory / f".s3mount-doctor-{secrets.token_hex(8)}"
    content = secrets.token_bytes(MIB)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        since = time.perf_counter()
        for _ in range(_SAMPLE // MIB):
            os.write(fd, content)
        os.fsync(fd)
        written_s = time.perf_counter() - since
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(fd, 0, os.SEEK_SET)
        since = time.perf_counter()
        while os.read(fd, MIB):
            pass
        return written_s, time.perf_counter() - since
    finally:
        os.close(fd)
        path.unlink()


async def examine_bucket(config: MountConfig, tell: Tell, *, may_write: bool) -> None:
    """Credentials, region, permissions, and the clock."""
    if config.s3.location.is_directory_bucket:
        tell(_directory_bucket(config))
    subject = "credentials"
    try:
        tell(good(subject, f"from {await credential_source(config.s3)}"))
        subject = "list"
        async with checkup(config.s3, config.crt) as bucket:
            tell(good("region", bucket.region))
            tell(good(subject, "permitted"))
            tell(await _permission_to_read(bucket))
            if may_write:
                tell(await _permission_to_write(bucket))
            tell(_clock(await bucket.clock_skew_s()))
    except S3MountError as error:
        tell(_failed(subject, error))
    except BaseExceptionGroup as group:
        tell(_failed(subject, sole_cause(group)))


def _directory_bucket(config: MountConfig) -> Finding:
    """What is special about it, and whether the user's region can be right."""
    region, told = config.s3.location.region, "S3 Express One Zone: renames are no copies, --incremental-upload appends"
    if config.s3.region is not None and region is not None and config.s3.region != region:
        found = f"the zone in the bucket's name is in {region}, not in {config.s3.region}"
        return weak("directory bucket", found, "leave --region out")
    return good("directory bucket", told)


async def _permission_to_read(bucket: Checkup) -> Finding:
    try:
        key = await bucket.read()
    except S3MountError as error:
        return _failed("get", error)
    if key is None:
        return weak("get", "there is no object to read", "put one there and ask again")
    return good("get", "permitted")


async def _permission_to_write(bucket: Checkup) -> Finding:
    try:
        await bucket.write_nothing()
    except S3MountError as error:
        return _failed("put", error)
    return good("put", "permitted")


def _clock(skew_s: float | None) -> Finding:
    if skew_s is None:
        return good("clock", "the server does not tell its time")
    told = f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the server's"
    if abs(skew_s) < _SKEW_S:
        return good("clock", told)
    kind = bad if abs(skew_s) > _SKEWED_S else weak
    return kind("clock", told, "set the clock, and keep it right: timedatectl set-ntp true")


def _failed(subject: str, error: BaseException) -> Finding:
    """A failure in the words of a start that fails."""
    if not isinstance(error, S3MountError):
        raise error
    return bad(subject, " ".join(str(error).split()), exits.verdict_for(error).advice)
