"""A mount whose daemons die: a file system is dropped as it is, and another takes over what it left in memory."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from s3mount.cache.metadata import MetadataConfig
from s3mount.core.ledger import LedgerStatistics, succeed
from s3mount.daemon.memory import MemoryArea
from s3mount.fs.filesystem import S3FileSystem
from tests.fs.harness import Mounted, file_system
from tests.support.fake_store import FakeStore

IDENTITY = "https://s3.test/bucket/"


class Succession:
    """One daemon after another on the same two memory files."""

    def __init__(self, store: FakeStore, metadata: MetadataConfig | None, fds: tuple[int, int]) -> None:
        self._store = store
        self._metadata = metadata
        self._fds = fds
        self._daemon = AsyncExitStack()
        self.mounted: Mounted

    @property
    def fs(self) -> S3FileSystem:
        """That of the daemon which serves now."""
        return self.mounted.fs

    @property
    def ledger(self) -> LedgerStatistics:
        return self.fs.statistics().takeover

    async def begin(self, identity: str = IDENTITY) -> None:
        """A daemon takes over from the one before, if there was one."""
        first, second = (MemoryArea(fd) for fd in self._fds)
        self._daemon = AsyncExitStack()
        self._daemon.callback(first.close)
        self._daemon.callback(second.close)
        ledger = succeed((first, second), identity)
        one = file_system(self._store, metadata=self._metadata, ledger=ledger)
        self.mounted = await self._daemon.enter_async_context(one)

    async def kill(self) -> None:
        """The daemon is gone, with what it was doing."""
        await self._daemon.aclose()

    async def crash(self) -> None:
        await self.kill()
        await self.begin()


@asynccontextmanager
async def succession(store: FakeStore, metadata: MetadataConfig | None = None) -> AsyncIterator[Succession]:
    """A mount with its first daemon."""
    fds = os.memfd_create("first"), os.memfd_create("second")
    try:
        daemons = Succession(store, metadata, fds)
        await daemons.begin()
        try:
            yield daemons
        finally:
            await daemons.kill()
    finally:
        for fd in fds:
            os.close(fd)
