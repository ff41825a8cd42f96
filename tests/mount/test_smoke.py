"""The smallest whole thing: a bucket is a directory."""

from pathlib import Path

import pytest

from tests.support.content import make_content
from tests.support.mounts import is_mounted, mounted
from tests.support.proxy import proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]


def test_a_bucket_is_a_directory(weed: Server, work: Path) -> None:
    """Files are listed and read, the exit code of a stopped mount is 0, and it can be mounted again."""
    bucket = weed.make_bucket()
    content = make_content("a", 3_000_000)
    weed.client.put_object(Bucket=bucket, Key="dir/a.bin", Body=content)
    with mounted(bucket, work, url=weed.url) as mount:
        assert [entry.name for entry in mount.path.iterdir()] == ["dir"]
        assert (mount.path / "dir/a.bin").read_bytes() == content
        assert mount.warnings() == []
        assert mount.stop() == 0
    assert not is_mounted(mount.path)
    with mounted(bucket, work, url=weed.url) as again:  # in the same place, and its log goes on in the same file
        assert is_mounted(again.path)
        assert again.log.count("mounted s3://") == 1


def test_requests_are_counted_by_a_proxy(weed: Server, work: Path) -> None:
    """Two probes, one LIST per component that the first probe did not show, one GET."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="a/b/c.txt", Body=b"hello")
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        assert (mount.path / "a/b/c.txt").read_bytes() == b"hello"
        assert front.count() <= 2 + 3
        assert front.count("HEAD") == 0
