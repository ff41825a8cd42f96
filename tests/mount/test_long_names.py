"""Names as long as a key lets them be, and longer ones, by every call that makes a name."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from s3mount.core.keys import MAX_KEY_BYTES
from tests.support.mounts import mounted
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

PREFIX = "präfix/"


def refusal(call: Callable[..., object], *args: object) -> str:
    with pytest.raises(OSError) as caught:  # noqa: PT011
        call(*args)
    return errno.errorcode[caught.value.errno or 0]


def test_the_longest_name(moto_server: Server, work: Path) -> None:
    """A file may have a name of as many bytes as statfs says; with one more every call that makes a name is refused."""
    bucket = moto_server.make_bucket()
    with mounted(bucket, work, "--rw", "--prefix", PREFIX, url=moto_server.url) as mount:
        assert f"\n{bucket}/{PREFIX} {mount.path} " in Path("/proc/self/mounts").read_text(encoding="utf-8")
        limit = os.statvfs(mount.path).f_namemax
        assert limit == MAX_KEY_BYTES - len(PREFIX.encode())
        longest, too_long = "x" * limit, "y" * (limit + 1)
        (mount.path / "a").write_bytes(b"a")
        (mount.path / longest).write_bytes(b"longest")
        (mount.path / "d").mkdir()
        for call, *args in (
            (os.open, mount.path / too_long, os.O_CREAT | os.O_WRONLY),
            (os.mkdir, mount.path / too_long),
            (os.rename, mount.path / "a", mount.path / too_long),
            (os.rename, mount.path / "d", mount.path / too_long),
            (os.link, mount.path / "a", mount.path / too_long),
            (os.symlink, "a", mount.path / too_long),
            (os.mkdir, mount.path / ("z" * limit)),  # the key of a directory ends in a slash
            (os.open, mount.path / "d" / ("z" * (limit - 1)), os.O_CREAT | os.O_WRONLY),
        ):
            assert refusal(call, *args) == "ENAMETOOLONG"
        os.rename(mount.path / longest, mount.path / ("w" * limit))
        assert sorted(os.listdir(mount.path)) == ["a", "d", "w" * limit]
        assert (mount.path / ("w" * limit)).read_bytes() == b"longest"
    keys = [each["Key"] for each in moto_server.client.list_objects_v2(Bucket=bucket)["Contents"]]
    assert keys == [PREFIX + "a", PREFIX + "d/", PREFIX + "w" * limit]
