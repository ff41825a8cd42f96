"""A mount with --rw on a server that has no conditions of writes: a proxy answers 501 to each, as such servers do."""

import os
from pathlib import Path

import pytest

from tests.support.mounts import mounted
from tests.support.proxy import Fault, Request, error_answer, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

_CONDITIONS = ("if-match", "if-none-match")
_NOT_IMPLEMENTED = error_answer(501, "NotImplemented", "A header you provided implies functionality not implemented")


def _refuse(request: Request) -> Fault | None:
    has_condition = any(name in request.headers for name in _CONDITIONS) and request.method in ("PUT", "POST")
    return Fault(_NOT_IMPLEMENTED) if has_condition else None


def test_a_server_without_conditions(weed: Server, work: Path) -> None:
    """A server that answers 501 to conditions is written to without them, and the log says once what that means."""
    bucket = weed.make_bucket()
    with proxy(weed.url) as server, mounted(bucket, work, "--rw", url=server.url) as mount:
        server.decide = _refuse
        os.mkdir(mount.path / "d")
        file = mount.path / "d/file"
        file.write_bytes(b"x" * (20 << 20))
        file.write_bytes(b"again")
        with file.open("ab") as appended:
            appended.write(b" more")
            os.fsync(appended.fileno())
        os.symlink("file", mount.path / "d/link")
        os.link(file, mount.path / "d/copy")
        os.replace(file, mount.path / "d/moved")
        with pytest.raises(FileExistsError):
            os.link(mount.path / "d/moved", mount.path / "d/copy")
        for name in ("moved", "copy"):
            found = weed.client.get_object(Bucket=bucket, Key=f"d/{name}")
            assert found["Body"].read() == b"again more"
        assert mount.stop() == 0  # so that the log is whole
        (warning,) = mount.warnings()
        assert "has no conditions" in warning
