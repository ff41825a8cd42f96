"""What a terminal would obey never reaches it, whoever's word it is."""

import pytest

from s3mount.core.findings import bad
from s3mount.errors import StoreFailure, printable
from tests.support.hostile import HOSTILE_KEYS


@pytest.mark.parametrize("key", HOSTILE_KEYS)
def test_lines_of_errors(key: str) -> None:
    """The line of an error has the key, and no character that is not printed."""
    line = str(StoreFailure("500", key=key, bucket="b", operation="GetObject"))
    assert line.isprintable()
    assert printable(key).isprintable()


def test_findings(capsys: pytest.CaptureFixture[str]) -> None:
    """What the server says of itself is escaped in the lines of `doctor`."""
    from s3mount.cli.doctor import _show

    _show(bad("list", "S3 answered \x1b[31m\nok    list: permitted", "\x07"), as_json=False)
    told = capsys.readouterr().out
    assert all(line.isprintable() for line in told.splitlines())
    assert not any(line.startswith("ok") for line in told.splitlines())
