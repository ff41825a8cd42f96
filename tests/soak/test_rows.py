"""A hundred mounts of one directory, one after the other."""

from pathlib import Path

import pytest

from tests.mount.test_unmounting import fill, mount_in_a_row
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(0)]


def test_a_hundred_mounts_in_a_row(weed: Server, work: Path) -> None:
    """A directory is mounted and unmounted a hundred times, and nothing stays: no process, socket or mount."""
    mount_in_a_row(fill(weed), weed, work, 100)
