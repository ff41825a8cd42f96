"""The verbs that change names: stub of the seam until the branch comes."""

from s3mount.core.attrs import FileAttrs


class Namespace:
    """Names."""

    async def mkdir(self, parent_ino: int, name: bytes, mode: int) -> FileAttrs:
        raise NotImplementedError

    async def rmdir(self, parent_ino: int, name: bytes) -> None:
        raise NotImplementedError

    async def unlink(self, parent_ino: int, name: bytes) -> None:
        raise NotImplementedError

    async def rename(
        self, parent_ino: int, name: bytes, new_parent_ino: int, new_name: bytes, *, may_replace: bool
    ) -> None:
        raise NotImplementedError

    async def link(self, ino: int, parent_ino: int, name: bytes) -> FileAttrs:
        raise NotImplementedError

    async def symlink(self, parent_ino: int, name: bytes, target: bytes) -> FileAttrs:
        raise NotImplementedError

    async def readlink(self, ino: int) -> bytes:
        raise NotImplementedError

    async def sync(self) -> None:
        return
