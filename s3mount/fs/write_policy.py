"""What a mount may change: the switches, and the errors that name them.

--read-only           nothing                                       EROFS
(none)                new files and directories                     EPERM for the rest
--allow-overwrite     existing files, when they are cut off to nothing as they are opened
--allow-delete        unlink, rmdir
--rw                  everything
"""

from dataclasses import dataclass

from s3mount.errors import NotAllowed, ReadOnlyMount


@dataclass(frozen=True)
class WritePolicy:
    """Attributes: whether anything may be changed; whether everything; and what, if not everything."""

    is_read_only: bool = True
    is_rw: bool = False
    may_overwrite: bool = False
    may_delete: bool = False

    def check_create(self, key: str, what: str = "create") -> None:
        """Something new.

        Raises:
            ReadOnlyMount.
        """
        if self.is_read_only:
            raise ReadOnlyMount(f"{what} {key!r}: this mount only reads (--read-only)")

    def check_overwrite(self, key: str, *, is_whole: bool) -> None:
        """An existing file is written; whole: it is opened with O_TRUNC.

        Raises:
            ReadOnlyMount, NotAllowed.
        """
        self.check_create(key, "write")
        if self.is_rw or (is_whole and self.may_overwrite):
            return
        needed = "--allow-overwrite or --rw" if is_whole else "--rw"
        raise NotAllowed(f"{key!r} exists, and this mount does not change what exists: mount with {needed}")

    def check_delete(self, key: str) -> None:
        """A name is removed.

        Raises:
            ReadOnlyMount, NotAllowed.
        """
        self.check_create(key, "remove")
        if not (self.is_rw or self.may_delete):
            raise NotAllowed(f"{key!r} is not removed: mount with --allow-delete or --rw")

    def check_edit(self, key: str, what: str) -> None:
        """Anything else.

        Raises:
            ReadOnlyMount, NotAllowed.
        """
        self.check_create(key, what)
        if not self.is_rw:
            raise NotAllowed(f"{what} {key!r}: this mount does not do that without --rw")
