"""What a mount may change: the switches, and the errors that name them.

    --read-only           nothing                                       EROFS
    (none)                new files and directories                     EPERM for the rest
    --allow-overwrite     existing files, when they are cut off to nothing as they are opened
    --allow-delete        unlink, rmdir
    --rw                  everything

A section of the configuration file may say otherwise for some paths: read-only, or everything.
"""

from dataclasses import dataclass, field

from s3mount.core.policies import PathPolicies
from s3mount.errors import NotAllowed, ReadOnlyMount


@dataclass(frozen=True)
class WritePolicy:
    """Attributes: whether anything may be changed; whether everything; and what, if not everything; what paths say."""

    is_read_only: bool = True
    is_rw: bool = False
    may_overwrite: bool = False
    may_delete: bool = False
    paths: PathPolicies = field(default_factory=PathPolicies, compare=False)

    @property
    def is_read_only_everywhere(self) -> bool:
        """Whether the kernel itself may refuse to write."""
        return self.is_read_only and False not in self.paths.says_anywhere("is_read_only")

    def _may_all(self, key: str) -> bool:
        said = self.paths.for_key(key).is_read_only
        return self.is_rw if said is None else not said

    def check_create(self, key: str, what: str = "create") -> None:
        """Something new.

        Raises:
            ReadOnlyMount.
        """
        said = self.paths.for_key(key).is_read_only
        if self.is_read_only if said is None else said:
            why = "this mount only reads (--read-only)" if said is None else "read-only there by the configuration file"
            raise ReadOnlyMount(f"{what} {key!r}: {why}")

    def check_overwrite(self, key: str, *, is_whole: bool) -> None:
        """An existing file is written; whole: it is opened with O_TRUNC.

        Raises:
            ReadOnlyMount, NotAllowed.
        """
        self.check_create(key, "write")
        if self._may_all(key) or (is_whole and self.may_overwrite):
            return
        needed = "--allow-overwrite or --rw" if is_whole else "--rw"
        raise NotAllowed(f"{key!r} exists, and this mount does not change what exists: mount with {needed}")

    def check_delete(self, key: str) -> None:
        """A name is removed.

        Raises:
            ReadOnlyMount, NotAllowed.
        """
        self.check_create(key, "remove")
        if not (self._may_all(key) or self.may_delete):
            raise NotAllowed(f"{key!r} is not removed: mount with --allow-delete or --rw")

    def check_edit(self, key: str, what: str) -> None:
        """Anything else.

        Raises:
            ReadOnlyMount, NotAllowed.
        """
        self.check_create(key, what)
        if not self._may_all(key):
            raise NotAllowed(f"{what} {key!r}: this mount does not do that without --rw")
