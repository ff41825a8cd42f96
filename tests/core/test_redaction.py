"""Text without secrets: known values, and what stands where a secret does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.redaction import HIDDEN, redacted

SECRET = "wJalrXUtnFEMI/K7MDENG"


@pytest.mark.parametrize(
    "text",
    [
        "aws_secret_access_key = {}",
        '"aws_session_token": "{}"',
        "AWS_SECRET_ACCESS_KEY={}",
        "GET /k?X-Amz-Signature={}&x=1",
        "GET /k?X-Amz-Security-Token={}",
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIA, Signature={}",
        "x-amz-security-token: {}",
        "http://user:{}@proxy:3128/",
    ],
)
def test_places(text: str) -> None:
    """Where a secret stands, whatever is there is hidden."""
    told = redacted(text.format(SECRET), ())
    assert SECRET not in told
    assert HIDDEN in told


@given(before=st.text(), after=st.text())
def test_known_values(before: str, after: str) -> None:
    """A value that is known is hidden wherever it is, in the middle of anything."""
    assert SECRET not in redacted(f"{before}{SECRET}{after}", {SECRET})


def test_what_is_no_secret_stays() -> None:
    """Ordinary lines come through as they are; short values of the environment hide nothing."""
    line = "open: EIO: S3 answered 500 (operation=GetObject bucket=b key='a.txt' request-id=18EC) http://127.0.0.1:9000"
    assert redacted(line, {"", "b", "true", "9000"}) == line


def test_access_keys() -> None:
    """An access key's id is known by its form."""
    assert redacted("key AKIAIOSFODNN7EXAMPLE used", ()) == f"key AKIA{HIDDEN} used"
