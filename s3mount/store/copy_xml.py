"""The answer to a CopyObject: two fields, or an error although the status is 200.

S3 answers before a long copy is done, and says in the body what became of it (API Reference, CopyObject).
"""

import re
from datetime import datetime
from http import HTTPStatus

from s3mount.errors import NotS3
from s3mount.store.s3_errors import from_crt

_ETAG = re.compile(rb"<ETag>([^<]{1,256})</ETag>")
_MTIME = re.compile(rb"<LastModified>([^<]{1,64})</LastModified>")


def parse_copy(body: bytes, **context: str) -> tuple[str, int]:
    """ETag, as it is written there, and time of the copy in whole seconds since the epoch.

    Args:
        context: bucket and key, for errors.

    Raises:
        StoreError: the copy failed, or this is no answer to one.
    """
    context["operation"] = "CopyObject"
    etag, mtime = _ETAG.search(body), _MTIME.search(body)
    if b"<Error>" in body:
        raise from_crt(None, HTTPStatus.INTERNAL_SERVER_ERROR, body, None, **context)
    if etag is None or mtime is None:
        raise NotS3("the answer to a copy says neither what was made nor when", **context)
    text = etag[1].decode("utf-8", "replace").replace("&quot;", '"').replace("&#34;", '"')
    try:
        return text, int(datetime.fromisoformat(mtime[1].decode("ascii")).timestamp())
    except ValueError as error:
        raise NotS3("the answer to a copy has a time that is none", **context) from error
