"""Modes, owners and times that programs set: what S3 does not have of them is shown as long as the mount lives.

They go with the name: a file that is renamed keeps them, a name that is removed loses them; who has that file open
goes on to see them.  A time belongs to one version, and goes when the file is written again; the rest stays.

Bounded: the least recently used go first.
"""

from dataclasses import dataclass

from cachetools import LRUCache

from s3mount.core.attrs import FileAttrs
from s3mount.core.inode import Inode
from s3mount.core.keys import SEPARATOR
from s3mount.core.posix import NOTHING_SAID, Posix

#: Names with attributes of their own, some 300 bytes each.
MAX_SHOWN = 100_000


@dataclass
class Shown:
    """What was set for one name; None for what was not.

    Attributes:
        mode: permission bits.
        mtime_s: whole seconds since the epoch, of the version with `etag`.
    """

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    mtime_s: int | None = None
    etag: str = ""

    @property
    def posix(self) -> Posix:
        """What was set."""
        return Posix(self.mode, self.uid, self.gid, self.mtime_s)


class ShownAttributes:
    """By key, of a directory with its slash; of what has no name any more by number."""

    def __init__(self) -> None:
        self._shown: LRUCache[str, Shown] = LRUCache(MAX_SHOWN)
        self._nameless: LRUCache[int, Shown] = LRUCache(MAX_SHOWN)

    def set(self, inode: Inode, change: Shown) -> None:
        """A program set some of them."""
        if change == Shown():
            return
        shown = self._of(inode) or Shown()
        for name in ("mode", "uid", "gid", "mtime_s"):
            if (value := getattr(change, name)) is not None:
                setattr(shown, name, value)
        shown.etag = inode.found.etag if inode.found else ""
        if inode.is_orphan:
            self._nameless[inode.ino] = shown
        else:
            self._shown[inode.key] = shown

    def _of(self, inode: Inode) -> Shown | None:
        return self._nameless.get(inode.ino) if inode.is_orphan else self._shown.get(inode.key)

    def applied(self, inode: Inode, attrs: FileAttrs) -> FileAttrs:
        """Attributes with what was set."""
        if not (self._shown or self._nameless) or (shown := self._of(inode)) is None:
            return attrs
        mode = attrs.mode if shown.mode is None else attrs.mode & ~0o7777 | shown.mode
        is_this = inode.found is None or inode.found.etag == shown.etag
        return attrs._replace(
            mode=mode,
            uid=attrs.uid if shown.uid is None else shown.uid,
            gid=attrs.gid if shown.gid is None else shown.gid,
            mtime_s=shown.mtime_s if shown.mtime_s is not None and is_this else attrs.mtime_s,
        )

    def written(self, inode: Inode) -> None:
        """A file was written: it has the time of that."""
        if (shown := self._of(inode)) is not None:
            shown.mtime_s = None

    def saved(self, key: str, etag: str) -> None:
        """What was written is this version: times that were set since then are its."""
        if self._shown and (shown := self._shown.get(key)) is not None:
            shown.etag = etag

    def posix(self, key: str) -> Posix:
        """What was set for a name, and S3 does not have."""
        shown = self._shown.get(key) if self._shown else None
        return NOTHING_SAID if shown is None else shown.posix

    def keys_below(self, prefix: str) -> list[str]:
        """Names that something was set for."""
        return [key for key in self._shown if key.startswith(prefix)]

    def stored(self, key: str, posix: Posix) -> None:
        """S3 has that of a name: it is shown as long as S3 says so."""
        if self._shown and (shown := self._shown.get(key)) is not None:
            for name, value in posix._asdict().items():
                if getattr(shown, name) == value:
                    setattr(shown, name, None)
            if shown.posix == NOTHING_SAID:
                del self._shown[key]

    def moved(self, old_key: str, new_key: str) -> None:
        """A name, or a directory with everything in it, is another now."""
        if old_key.endswith(SEPARATOR):
            for key in [each for each in self._shown if each.startswith(old_key)]:
                self._move(key, new_key + key.removeprefix(old_key))
        else:
            self._move(old_key, new_key)

    def _move(self, old_key: str, new_key: str) -> None:
        shown = self._shown.pop(old_key, None)
        self.removed(new_key)
        if shown is not None:
            self._shown[new_key] = shown

    def orphaned(self, inode: Inode) -> None:
        """What has the name of an inode that is no orphan yet is no longer that inode."""
        shown = self._shown.pop(inode.key, None)
        self._nameless.pop(inode.ino, None)
        if shown is not None:
            self._nameless[inode.ino] = shown

    def removed(self, key: str) -> None:
        """A name is gone."""
        self._shown.pop(key, None)

    def check_invariants(self) -> None:
        """Raises ValueError when more is kept than may be."""
        for kept in self._shown, self._nameless:
            if len(kept) > MAX_SHOWN:
                raise ValueError(f"{len(kept)} names have attributes of their own")
