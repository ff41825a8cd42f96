"""What the object has beside its content that a file being written becomes.

    new, or cut off to nothing as it is opened    what the mount makes objects with
    changed: appended to, patched, cut off        what the version had that is changed, as far as it is not about
                                                  its content; one HEAD tells, when it is first published

A time, or a checksum that a program keeps there of the whole content, is about the content: other programs would take
the changed object for the old one, or for a broken one.
"""

from s3mount.errors import ObjectNotFound
from s3mount.store.writing import Attributes, Writer

#: Of the metadata of objects that were acknowledged before they were there: which state they are.
MARK = "s3mount-spool"
#: Metadata about the content: rclone's and s3fs's time, rclone's MD5, s3cmd's time and MD5 in one; and ours.
ABOUT_CONTENT = frozenset({"mtime", "md5chksum", "s3cmd-attrs", MARK})


class DraftAttributes:
    """Attributes of one file being written.

    Args:
        given: what the mount makes objects with.
        changed: key of the object that is changed; None for one that is new.
    """

    def __init__(self, given: Attributes, changed: str | None) -> None:
        self._given = given
        self._changed = changed

    async def publish(self, writer: Writer, mark: str) -> Attributes:
        """Of the object that is made now.

        Args:
            mark: of an acknowledged state; empty for none.

        Raises:
            StoreError: it could not be asked what the version that is changed has.
        """
        if self._changed is not None:
            self._given = await _carried_over(writer, self._changed, self._given)
            self._changed = None
        return self._given.with_metadata(MARK, mark) if mark else self._given


async def _carried_over(writer: Writer, key: str, given: Attributes) -> Attributes:
    try:
        found = (await writer.describe(key)).attributes
    except ObjectNotFound:  # the condition of the write says what that means
        return given
    kept = {name: value for name, value in found.metadata.items() if name not in ABOUT_CONTENT}
    return Attributes({**given.headers, **found.headers}, {**given.metadata, **kept})
