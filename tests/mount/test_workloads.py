"""The unmodified programs of tests/workloads whose libraries are small; `make workloads` runs all of them."""

import sys
from pathlib import Path

import pytest

from tests.support.servers import Server
from tests.workloads.__main__ import write

pytestmark = [pytest.mark.mount, pytest.mark.server]

#: In the order in which one reads what another wrote.
NAMES = [
    "np_save", "np_load", "np_memmap", "np_memmap_w", "h5_write", "h5_read", "pq_write", "pq_read", "pq_read_mmap",
    "pd_csv", "imgfolder_make", "lavis", "lmdb_w", "lmdb_r", "zarr", "shutil", "logging", "touch", "sqlite",
]  # fmt: skip


def test_small_workloads(weed: Server, work: Path) -> None:
    """Programs that know nothing of S3 end well on a mount, and another client has the same bytes right after each."""
    assert write(sys.executable, weed, weed.make_bucket(), work, NAMES) == []
