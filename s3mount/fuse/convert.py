"""Our attributes ↔ pyfuse3's."""

import stat

import pyfuse3

from s3mount.cache.shown import Shown
from s3mount.core.attrs import BLOCK_SIZE, FileAttrs
from s3mount.core.posix import Posix
from s3mount.units import KIB

_NS = 1_000_000_000
#: statfs(2): a bucket has no size, so df shows one that no program finds too small.
_STATFS_BLOCK = 4 * KIB
_STATFS_BLOCKS = 1 << 48
_STATFS_FILES = 1 << 40


def to_entry(attrs: FileAttrs) -> pyfuse3.EntryAttributes:
    """Attributes with the time the kernel may use them and the name for."""
    entry = pyfuse3.EntryAttributes()
    entry.st_ino = pyfuse3.InodeT(attrs.ino)
    entry.generation = 0
    entry.entry_timeout = attrs.ttl_s if attrs.is_name_kept else 0.0
    entry.attr_timeout = attrs.ttl_s if attrs.is_whole else 0.0
    entry.st_mode = pyfuse3.ModeT(attrs.mode)
    entry.st_nlink = attrs.nlink
    entry.st_uid = attrs.uid
    entry.st_gid = attrs.gid
    entry.st_rdev = 0
    entry.st_size = attrs.size
    entry.st_blksize = BLOCK_SIZE
    entry.st_blocks = attrs.blocks
    entry.st_atime_ns = entry.st_ctime_ns = entry.st_mtime_ns = attrs.mtime_s * _NS
    return entry


def to_shown(attr: pyfuse3.EntryAttributes, fields: pyfuse3.SetattrFields) -> Shown:
    """What a program set, beside the size."""
    return Shown(
        mode=stat.S_IMODE(attr.st_mode) if fields.update_mode else None,
        uid=attr.st_uid if fields.update_uid else None,
        gid=attr.st_gid if fields.update_gid else None,
        mtime_s=attr.st_mtime_ns // _NS if fields.update_mtime else None,
    )


def made(mode: int, ctx: pyfuse3.RequestContext) -> Posix:
    """What a program makes, and who it is."""
    return Posix(stat.S_IMODE(mode), ctx.uid, ctx.gid)


def statfs(name_max: int) -> pyfuse3.StatvfsData:
    """A file system with room for everything."""
    answer = pyfuse3.StatvfsData()
    answer.f_bsize = answer.f_frsize = _STATFS_BLOCK
    answer.f_blocks = answer.f_bfree = answer.f_bavail = _STATFS_BLOCKS
    answer.f_files = answer.f_ffree = answer.f_favail = _STATFS_FILES
    answer.f_namemax = name_max
    return answer
