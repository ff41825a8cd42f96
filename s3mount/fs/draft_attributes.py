"""What the object has beside its content that a file being written becomes.

    new, or cut off to nothing as it is opened    what the mount makes objects with
    changed: appended to, patched, cut off        what the version had that is changed, as far as it is not about
                                                  its content; one HEAD tells, when it is first published
    made                                          the next version has what this one has

Over that comes what programs set (`Stamps`).  A time, or a checksum that a program keeps there of the whole content, is
about the content: other programs would take the changed object for the old one, or for a broken one.
"""

from typing import Protocol

from s3mount.core.attrs import ObjectStat
from s3mount.errors import ObjectNotFound
from s3mount.store.writing import Attributes, Writer, Written

#: Of the metadata of objects that were acknowledged before they were there: which state they are.
MARK = "s3mount-spool"
#: Metadata about the content: rclone's and s3fs's time, rclone's MD5, s3cmd's time and MD5 in one; and ours.
ABOUT_CONTENT = frozenset({"mtime", "md5chksum", "s3cmd-attrs", MARK})


class Stamps(Protocol):
    """Modes, owners and times that programs set, as metadata: `fs.stamps`."""

    def stamped(self, key: str, attributes: Attributes) -> Attributes:
        """Attributes with what was set of a file."""

    def is_pending(self, key: str) -> bool:
        """Whether something was set that the object does not have."""

    async def merged(self, key: str, found: ObjectStat) -> Attributes:
        """What an object has, with what was set of it; raises as `copied`."""

    async def copied(self, key: str, found: ObjectStat) -> tuple[ObjectStat, Attributes]:
        """The object with what was set, made of itself, and what it has.

        Raises:
            ObjectChanged: it is another version.
            StoreError.
        """

    def made(self, key: str, found: ObjectStat, attributes: Attributes) -> None:
        """A version was made with these; the inode stands for it."""


class _NoStamps:
    """Nothing is kept in metadata."""

    def stamped(self, key: str, attributes: Attributes) -> Attributes:
        return attributes

    def is_pending(self, key: str) -> bool:
        return False

    async def merged(self, key: str, found: ObjectStat) -> Attributes:
        raise NotImplementedError

    async def copied(self, key: str, found: ObjectStat) -> tuple[ObjectStat, Attributes]:
        raise NotImplementedError

    def made(self, key: str, found: ObjectStat, attributes: Attributes) -> None:
        return


NO_STAMPS: Stamps = _NoStamps()


class DraftAttributes:
    """Attributes of one file being written.

    Args:
        given: what the mount makes objects with.
        changed: key of the object that is changed; None for one that is new.
    """

    def __init__(self, stamps: Stamps, given: Attributes, changed: str | None) -> None:
        self._stamps = stamps
        self._given = given
        self._changed = changed

    def begin(self, key: str) -> Attributes:
        """Of an upload that begins while the file is written; a time that was set may not last."""
        return _without(self._stamps.stamped(key, self._given), ABOUT_CONTENT)

    async def publish(self, writer: Writer, key: str, mark: str) -> Attributes:
        """Of the object that is made now.

        Args:
            mark: of an acknowledged state; empty for none.

        Raises:
            StoreError: it could not be asked what the version that is changed has.
        """
        if self._changed is not None:
            self._given = await _carried_over(writer, self._changed, self._given)
            self._changed = None
        wanted = self._stamps.stamped(key, self._given)
        return wanted.with_metadata(MARK, mark) if mark else wanted

    def made(self, attributes: Attributes) -> None:
        """The object has these."""
        self._given = _without(attributes, ABOUT_CONTENT)


async def own_write(writer: Writer, key: str, mark: str, size: int) -> Written | None:
    """The object that is there, if a daemon that died wrote it from the acknowledged state with that mark."""
    try:
        found = await writer.describe(key)
    except ObjectNotFound:
        return None
    is_ours = found.attributes.metadata.get(MARK) == mark and found.stat.size == size
    return Written(found.stat.id, found.stat.mtime_s) if is_ours else None


async def _carried_over(writer: Writer, key: str, given: Attributes) -> Attributes:
    try:
        found = (await writer.describe(key)).attributes
    except ObjectNotFound:  # the condition of the write says what that means
        return given
    kept = _without(found, ABOUT_CONTENT)
    return Attributes({**given.headers, **kept.headers}, {**given.metadata, **kept.metadata})


def _without(attributes: Attributes, names: frozenset[str]) -> Attributes:
    kept = {name: value for name, value in attributes.metadata.items() if name not in names}
    return Attributes(attributes.headers, kept)
