"""What the record of multipart uploads says: lines that are appended and never changed, each one JSON object.

    {"id": …, "key": …, "began_s": …}      it is under way
    {"ended": id}                          it was completed, or aborted

A line begins with its newline, so that one that a full disk cut off spoils no other; what cannot be read says nothing.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple


class RecordedUpload(NamedTuple):
    """An upload that somebody began; `began_s` in seconds since the epoch."""

    upload_id: str
    key: str
    began_s: int


def began(upload: RecordedUpload) -> bytes:
    """The line that says so."""
    return _line({"id": upload.upload_id, "key": upload.key, "began_s": upload.began_s})


def ended(upload_id: str) -> bytes:
    """The line that says so."""
    return _line({"ended": upload_id})


def _line(fields: dict[str, Any]) -> bytes:
    return b"\n" + json.dumps(fields).encode()


def under_way(content: bytes) -> list[RecordedUpload]:
    """The uploads that a record does not know the end of, in the order they began."""
    found: dict[str, RecordedUpload] = {}
    for fields in _readable(content.split(b"\n")):
        if "ended" in fields:
            found.pop(str(fields["ended"]), None)
            continue
        try:
            upload = RecordedUpload(str(fields["id"]), str(fields["key"]), int(fields["began_s"]))
        except (KeyError, TypeError, ValueError):
            continue
        found[upload.upload_id] = upload
    return list(found.values())


def _readable(lines: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    for line in lines:
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        if isinstance(fields, dict):
            yield fields
