"""A host that reaches S3 through a proxy only."""

from pathlib import Path

import pytest

from s3mount.units import KIB, MIB
from tests.support.content import make_content
from tests.support.mounts import aws_environment, mounted
from tests.support.proxy import proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]


def test_everything_goes_through_the_proxy(weed: Server, work: Path) -> None:
    """With HTTP_PROXY small and large files are read, written, patched and renamed by way of it, and nothing waits."""
    bucket, large = weed.make_bucket(), make_content("large", 20 * MIB)
    weed.client.put_object(Bucket=bucket, Key="there", Body=large)
    with proxy(weed.url) as front:
        env = aws_environment(http_proxy=front.url)
        with mounted(bucket, work, "--rw", url="http://s3.invalid", env=env) as mount:
            assert (mount.path / "there").read_bytes() == large
            (mount.path / "large").write_bytes(large)
            (mount.path / "small").write_bytes(large[: 100 * KIB])
            with (mount.path / "there").open("r+b") as file:
                file.write(b"patched")
            (mount.path / "small").rename(mount.path / "moved")
            assert mount.stop() == 0
            assert mount.warnings() == []
        for key, content in {"large": large, "moved": large[: 100 * KIB], "there": b"patched" + large[7:]}.items():
            assert weed.client.get_object(Bucket=bucket, Key=key)["Body"].read() == content
