"""Answers to copies, as servers write them."""

import pytest

from s3mount.errors import AccessDenied, NotS3, StoreFailure, StoreThrottled
from s3mount.store.copy_xml import parse_copy


@pytest.mark.parametrize(
    ("etag", "text"),
    [('"abc"', '"abc"'), ("&quot;abc&quot;", '"abc"'), ("&#34;abc&#34;", '"abc"'), ("abc", "abc")],
)
def test_a_copy(etag: str, text: str) -> None:
    """An answer gives the ETag, however its quotes are written, and the time in whole seconds."""
    body = (
        f"<CopyObjectResult><ETag>{etag}</ETag><LastModified>2026-11-29T15:25:30.999Z</LastModified></CopyObjectResult>"
    )
    assert parse_copy(body.encode()) == (text, 1795965930)


@pytest.mark.parametrize(
    ("code", "kind"), [("InternalError", StoreFailure), ("SlowDown", StoreThrottled), ("AccessDenied", AccessDenied)]
)
def test_a_copy_that_failed_after_all(code: str, kind: type[Exception]) -> None:
    """An error in the body is an error, though the status said 200."""
    with pytest.raises(kind):
        parse_copy(f"<?xml version='1.0'?>\n  <Error><Code>{code}</Code><Message>m</Message></Error>".encode())


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"<ETag>a</ETag>", b"<ETag>a</ETag><LastModified>soon</LastModified>"],
)
def test_no_answer_to_a_copy(body: bytes) -> None:
    """What is no answer to a copy is told as that."""
    with pytest.raises(NotS3):
        parse_copy(body)
