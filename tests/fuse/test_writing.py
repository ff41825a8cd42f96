"""The handlers of a mount that may be written to, over a bucket in memory: what they answer."""

import errno
import os
from pathlib import Path
from typing import Any

import pyfuse3
import pytest

from s3mount.fuse.boundary import Boundary
from s3mount.fuse.writing import WritingOperations
from tests.fs.harness import ROOT
from tests.fs.names_harness import namespace
from tests.support.fake_store import FakeStore


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDONLY | os.O_DIRECT, os.O_WRONLY, os.O_RDWR | os.O_TRUNC])
async def test_an_inode_that_is_not_known(tmp_path: Path, autojump_clock: object, flags: int) -> None:
    """An open of a number that an earlier daemon gave out is ESTALE, after which the kernel looks the name up again."""
    store = FakeStore()
    store.put("a", b"x")
    async with namespace(store, tmp_path) as tested:
        operations: Any = WritingOperations(tested.mounted.fs, Boundary(60.0), tested.files, tested.names)
        context = pyfuse3.RequestContext()
        with pytest.raises(pyfuse3.FUSEError) as raised:
            await operations.open(4711, flags, context)
        assert raised.value.errno == errno.ESTALE
        entry = await operations.lookup(ROOT, b"a", context)
        opened = await operations.open(entry.st_ino, flags, context)
        await operations.release(opened.fh)
