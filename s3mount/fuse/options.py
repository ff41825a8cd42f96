"""How a mount is shown by the kernel, as mount options.  Nothing is imported that a small process should not have."""

from dataclasses import dataclass

from s3mount.fuse.handshake import MIN_BACKGROUND


@dataclass(frozen=True)
class FuseConfig:
    """How the kernel shows the mount.

    Attributes:
        source: what `mount` and `df` show in the first column.
        max_background: see `InitReply`.
        read_ahead_kib: what to ask the kernel for; None leaves it alone.
    """

    mount_point: str
    source: str
    allow_other: bool = False
    allow_root: bool = False
    auto_unmount: bool = False
    is_read_only: bool = True
    max_background: int = MIN_BACKGROUND
    read_ahead_kib: int | None = None

    @property
    def options(self) -> set[str]:
        """Mount options; of a mount that only reads the kernel itself refuses writes (`ro`).

        The kernel checks modes and owners only where other users can come in: for that it asks for the attributes
        of each name it opens, which in the minimal mode is a request to S3.
        """
        chosen = {
            "allow_other": self.allow_other,
            "allow_root": self.allow_root,
            "default_permissions": self.allow_other or self.allow_root,
            "auto_unmount": self.auto_unmount,
            "ro": self.is_read_only,
        }
        fixed = {"nosuid", "nodev", "noatime", f"fsname={self.source}", "subtype=s3mount"}
        return fixed | {name for name, is_on in chosen.items() if is_on}
