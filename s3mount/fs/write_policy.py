"""What a mount may change: the switches, and the errors that name them.

--read-only           nothing                                       EROFS
(none)                new files and directories                     EPERM for the rest
--allow-overwrite     existing files, when they are cut off to nothing as they are opened
--allow-delete        unlink, rmdir
--incremental-upload  existing files, when they are opened with O_APPEND
--rw                  everything

A section for paths can say one of the outermost two for what it matches; but nothing is changed in a mount that is
read-only, because the kernel lets nothing through.
"""

from dataclasses import dataclass, field

from s3mount.core.policies import PathPolicies
from s3mount.errors import NotAllowed, ReadOnlyMount


@dataclass(frozen=True)
class WritePolicy:
    """What may be changed where.

    Attributes:
        is_read_only, is_rw: whether nothing may be changed, or everything.
        may_overwrite, may_delete, may_append: what, if neither.
        paths: say otherwise of some.
    """

    is_read_only: bool = True
    is_rw: bool = False
    may_overwrite: bool = False
    may_delete: bool = False
    may_append: bool = False
    paths: PathPolicies = field(default_factory=PathPolicies, compare=False)

    def _is_rw(self, key: str) -> bool:
        said = self.paths.for_key(key).is_read_only
        return self.is_rw if said is None else not said

    def check_create(self, key: str, what: str = "create") -> None:
        """Something new.

        Raises:
            ReadOnlyMount.
        """
        if self.is_read_only:
            raise ReadOnlyMount(f"{what} {key!r}: this mount only reads (--read-only)")
        if self.paths.for_key(key).is_read_only:
            raise ReadOnlyMount(f"{what} {key!r}: a section of the configuration file says that it is read-only")

    def check_move(self, directory_key: str) -> None:
        """All below a directory comes or goes.

        Raises:
            ReadOnlyMount: some of it could be read-only.
        """
        if self.paths.may_be_read_only_below(directory_key):
            raise ReadOnlyMount(
                f"rename {directory_key!r}: a section of the configuration file says that some below it is read-only"
            )

    def check_overwrite(self, key: str, *, is_whole: bool, is_append: bool = False) -> None:
        """An existing file is written; whole: it is opened with O_TRUNC; append: with O_APPEND.

        Raises:
            ReadOnlyMount, NotAllowed.
        """
        self.check_create(key, "write")
        if self._is_rw(key) or (is_whole and self.may_overwrite) or (is_append and not is_whole and self.may_append):
            return
        needed = "--allow-overwrite or --rw" if is_whole else "--rw"
        raise NotAllowed(f"{key!r} exists, and this mount does not change what exists: mount with {needed}")

    def check_delete(self, key: str) -> None:
        """A name is removed.

        Raises:
            ReadOnlyMount, NotAllowed.
        """
        self.check_create(key, "remove")
        if not (self._is_rw(key) or self.may_delete):
            raise NotAllowed(f"{key!r} is not removed: mount with --allow-delete or --rw")

    def may_edit(self, key: str) -> bool:
        """Whether `check_edit` lets it pass."""
        return not self.is_read_only and self._is_rw(key)

    def check_edit(self, key: str, what: str) -> None:
        """Anything else.

        Raises:
            ReadOnlyMount, NotAllowed.
        """
        self.check_create(key, what)
        if not self._is_rw(key):
            raise NotAllowed(f"{what} {key!r}: this mount does not do that without --rw")
