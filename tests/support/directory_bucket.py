"""A directory bucket (S3 Express One Zone) on loopback: what AWS documents of it, as far as clients can tell.

    CreateSession    signed with the account's keys; everything else but copies with a session's, for `s3express`
    LIST             in no order; only below a prefix that ends in a slash, by no other delimiter, with no start-after
    ETags            say nothing of the content
    PUT              with an offset it appends, to exactly that size; at most `max_parts` parts an object
    RenameObject     one request, with conditions on both names; a token that comes again changes nothing

Written from the S3 API Reference and the User Guide, not from AWS's behaviour: never compared with AWS.
"""

import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from urllib.parse import quote, unquote
from xml.etree import ElementTree

from tests.support.directory_objects import DirectoryObjects, Refusal, Stored
from tests.support.processes import KEY, REGION, SECRET
from tests.support.proxy import error_answer
from tests.support.scripted import Call, Scripted, answer, is_signed_with, scripted, signature_of

NAME = "data--use1-az4--x-s3"
_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
#: Of requests that are not answered here.
_UNKNOWN = Refusal(501, "NotImplemented")
_UNSUPPORTED = ("x-amz-optional-object-attributes", "x-amz-request-payer", "x-amz-tagging", "x-amz-security-token")


@dataclass
class DirectoryBucket:
    """The script of a server: give it to `scripted`.

    Attributes:
        ttl_s: life of a session.
        may_write: False gives sessions that only read.
        max_uploads: on a page.
        counts: requests that were done, by operation.
    """

    name: str = NAME
    ttl_s: float = 300.0
    may_write: bool = True
    max_uploads: int = 3
    objects: DirectoryObjects = field(default_factory=DirectoryObjects)
    counts: Counter[str] = field(default_factory=Counter)
    sessions: dict[str, tuple[str, float]] = field(default_factory=dict)

    def __call__(self, call: Call) -> bytes:
        with self.objects.lock:
            try:
                operation = self._operation(call)
                self._check(call, operation)
                done = getattr(self, f"_{operation}")(call)
            except Refusal as refusal:
                return error_answer(refusal.status, refusal.code)
            self.counts[operation] += 1
            return bytes(done)

    def _operation(self, call: Call) -> str:
        query, key = call.query, self._key(call)
        if not key:
            found = {"session": "CreateSession", "delete": "DeleteObjects", "uploads": "ListMultipartUploads"}
            named = next((found[name] for name in found if name in query), "ListObjectsV2")
            return named if call.path.strip("/") == self.name else "NoSuchBucket"
        if "renameObject" in query:
            return "RenameObject"
        if "uploads" in query or "uploadId" in query:
            return self._upload_operation(call)
        is_copy = "x-amz-copy-source" in call.headers
        put = "CopyObject" if is_copy else "AppendObject" if "x-amz-write-offset-bytes" in call.headers else "PutObject"
        return {"GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject", "PUT": put}[call.method]

    def _upload_operation(self, call: Call) -> str:
        is_copy = "x-amz-copy-source" in call.headers
        post = "CreateMultipartUpload" if "uploads" in call.query else "CompleteMultipartUpload"
        part = "UploadPartCopy" if is_copy else "UploadPart"
        return {"POST": post, "PUT": part, "GET": "ListParts", "DELETE": "AbortMultipartUpload"}[call.method]

    def _key(self, call: Call) -> str:
        return unquote(call.path.removeprefix(f"/{self.name}").removeprefix("/"))

    def _NoSuchBucket(self, call: Call) -> bytes:
        raise Refusal(404, "NoSuchBucket")

    # -- who asks -------------------------------------------------------------------------------

    def _check(self, call: Call, operation: str) -> None:
        """The signature is for this service and region, and by the keys that this operation wants."""
        if any(name in call.headers for name in _UNSUPPORTED):
            raise _UNKNOWN
        found = signature_of(call)
        if found is None or (found.service, found.region) != ("s3express", REGION):
            raise Refusal(403, "AccessDenied")
        token = call.headers.get("x-amz-s3session-token", "")
        if operation in ("CreateSession", "CopyObject", "UploadPartCopy"):
            secret = SECRET if found.access_key == KEY and not token else ""
        elif token not in self.sessions:
            raise Refusal(403, "InvalidToken" if token else "AccessDenied")
        else:
            secret, until = self.sessions[token]
            if until < time.time():
                raise Refusal(400, "ExpiredToken")
            if found.access_key != f"KEY{token}":
                raise Refusal(403, "InvalidAccessKeyId")
        if not secret or not is_signed_with(call, secret):
            raise Refusal(403, "SignatureDoesNotMatch")
        if not self.may_write and call.method not in ("GET", "HEAD"):
            raise Refusal(403, "AccessDenied")

    def _CreateSession(self, call: Call) -> bytes:
        token, secret, until = secrets.token_hex(8), secrets.token_hex(16), time.time() + self.ttl_s
        self.sessions[token] = secret, until
        expiration = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return _xml(
            "CreateSessionResult",
            f"<Credentials><AccessKeyId>KEY{token}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{expiration}</Expiration></Credentials>",
            Date=formatdate(usegmt=True),
        )

    # -- names ----------------------------------------------------------------------------------

    def _ListObjectsV2(self, call: Call) -> bytes:
        query = call.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        if "start-after" in query:
            raise _UNKNOWN
        if (prefix and not prefix.endswith("/")) or query.get("delimiter", "/") != "/":
            raise Refusal(400, "InvalidArgument")
        items, token = self.objects.listed(
            prefix, delimiter, query.get("continuation-token", ""), int(query.get("max-keys", "1000"))
        )
        parts = []
        for item in items:
            name = f"{quote(item, safe='/') if 'encoding-type' in query else _text(item)}"
            if delimiter and item.endswith("/") and item != prefix:
                parts.append(f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>")
            else:
                stored = self.objects.get(item)
                parts.append(
                    f"<Contents><Key>{name}</Key><LastModified>{_iso(stored.mtime_s)}</LastModified><ETag>{stored.etag}"
                    f"</ETag><Size>{len(stored.content)}</Size><StorageClass>EXPRESS_ONEZONE</StorageClass></Contents>"
                )
        encoding = "<EncodingType>url</EncodingType>" if "encoding-type" in query else ""
        more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
        head = f"{encoding}<IsTruncated>{'true' if token else 'false'}</IsTruncated>{more}"
        return _xml("ListBucketResult", head + "".join(parts))

    def _RenameObject(self, call: Call) -> bytes:
        headers = call.headers
        source = unquote(headers["x-amz-rename-source"]).removeprefix("/").removeprefix(f"{self.name}/")
        self.objects.rename(
            source, self._key(call), headers.get("x-amz-rename-source-if-match", ""),
            token=headers["x-amz-client-token"], is_new=headers.get("if-none-match") == "*",
        )  # fmt: skip
        return answer(200)

    def _DeleteObject(self, call: Call) -> bytes:
        self.objects.delete(self._key(call), call.headers)
        return answer(204)

    def _DeleteObjects(self, call: Call) -> bytes:
        for key in _texts(call.body.decode(), "Key"):
            self.objects.delete(key)
        return _xml("DeleteResult", "")

    # -- content --------------------------------------------------------------------------------

    def _HeadObject(self, call: Call) -> bytes:
        return self._GetObject(call)

    def _GetObject(self, call: Call) -> bytes:
        stored = self.objects.get(self._key(call))
        if call.headers.get("if-match", stored.etag) != stored.etag:
            raise Refusal(412, "PreconditionFailed")
        times = {"Last-Modified": formatdate(stored.mtime_s, usegmt=True)}
        headers = {"ETag": stored.etag} | times | stored.metadata
        if call.headers.get("x-amz-checksum-mode") and stored.algorithm:
            headers |= {f"x-amz-checksum-{stored.algorithm}": stored.own_checksum, "x-amz-checksum-type": "FULL_OBJECT"}
        bounds = call.headers.get("range", "")
        if not bounds or call.method == "HEAD":
            return answer(200, stored.content, **headers)
        first, last = map(int, bounds.removeprefix("bytes=").split("-"))
        piece = stored.content[first : last + 1]
        if not piece:
            raise Refusal(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {first}-{first + len(piece) - 1}/{len(stored.content)}"
        return answer(206, piece, **headers)

    def _PutObject(self, call: Call) -> bytes:
        stored = self.objects.put(self._key(call), call.body, call.headers)
        return answer(200, ETag=stored.etag)

    def _AppendObject(self, call: Call) -> bytes:
        stored = self.objects.append(self._key(call), call.body, call.headers)
        return answer(200, ETag=stored.etag, x_amz_object_size=str(len(stored.content)))

    def _CopyObject(self, call: Call) -> bytes:
        stored = self.objects.copy(self._source(call), self._key(call), call.headers)
        times = f"<LastModified>{_iso(stored.mtime_s)}</LastModified>"
        return _xml("CopyObjectResult", f"{times}<ETag>{stored.etag}</ETag>")

    def _source(self, call: Call) -> Stored:
        source = unquote(call.headers["x-amz-copy-source"]).removeprefix("/").removeprefix(f"{self.name}/")
        stored = self.objects.get(source)
        if call.headers.get("x-amz-copy-source-if-match", stored.etag) != stored.etag:
            raise Refusal(412, "PreconditionFailed")
        return stored

    # -- uploads in parts -----------------------------------------------------------------------

    def _CreateMultipartUpload(self, call: Call) -> bytes:
        upload_id = self.objects.begin(self._key(call), call.headers)
        return _xml("InitiateMultipartUploadResult", f"<UploadId>{upload_id}</UploadId>")

    def _UploadPart(self, call: Call) -> bytes:
        etag = self.objects.keep_part(self._key(call), call.query, call.body, call.headers)
        echoed = {name: value for name, value in call.headers.items() if name.startswith("x-amz-checksum-")}
        return answer(200, ETag=etag, **echoed)

    def _UploadPartCopy(self, call: Call) -> bytes:
        stored = self._source(call)
        first, last = map(int, call.headers["x-amz-copy-source-range"].removeprefix("bytes=").split("-"))
        etag = self.objects.keep_part(self._key(call), call.query, stored.content[first : last + 1], {})
        return _xml("CopyPartResult", f"<ETag>{etag}</ETag>")

    def _ListParts(self, call: Call) -> bytes:
        after, parts = int(call.query.get("part-number-marker", "0")), self.objects.parts(self._key(call), call.query)
        found = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag><Size>{len(content)}</Size></Part>"
            for number, (etag, content) in sorted(parts.items())
            if number > after
        )
        return _xml("ListPartsResult", f"<IsTruncated>false</IsTruncated>{found}")

    def _ListMultipartUploads(self, call: Call) -> bytes:
        prefix = call.query.get("prefix", "")
        if prefix and not prefix.endswith("/"):
            raise Refusal(400, "InvalidArgument")
        if "upload-id-marker" in call.query:
            raise _UNKNOWN
        ids = [each for each, upload in self.objects.uploads.items() if upload.key.startswith(prefix)]
        start = int(call.query.get("key-marker", "0"))  # the marker is the server's own
        stop = start + self.max_uploads
        found = "".join(
            f"<Upload><Key>{_text(self.objects.uploads[each].key)}</Key><UploadId>{each}</UploadId>"
            f"<Initiated>{_iso(self.objects.uploads[each].began_s)}</Initiated></Upload>"
            for each in ids[start:stop]
        )
        more = f"<NextKeyMarker>{stop}</NextKeyMarker>" if len(ids) > stop else ""
        head = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}"
        return _xml("ListMultipartUploadsResult", head + found)

    def _CompleteMultipartUpload(self, call: Call) -> bytes:
        body = call.body.decode()
        named = zip(map(int, _texts(body, "PartNumber")), _texts(body, "ETag"), strict=True)
        stored = self.objects.complete(self._key(call), call.query, list(named), call.headers)
        return _xml("CompleteMultipartUploadResult", f"<ETag>{stored.etag}</ETag>")

    def _AbortMultipartUpload(self, call: Call) -> bytes:
        self.objects.parts(self._key(call), call.query)
        del self.objects.uploads[call.query["uploadId"]]
        return answer(204)


def _xml(root: str, inner: str, **headers: str) -> bytes:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} {_NAMESPACE}>{inner}</{root}>'.encode()
    return answer(200, body, Content_Type="application/xml", **headers)


def _text(value: str) -> str:
    return "".join(f"&#{ord(each)};" if each in '&<>"\r\t\n' else each for each in value)


def _texts(document: str, element: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(document).iter() if each.tag.endswith(f"}}{element}")]


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


@contextlib.contextmanager
def directory_bucket(**changes: object) -> Iterator[tuple[Scripted, DirectoryBucket]]:
    """One that is served while the block runs."""
    bucket = DirectoryBucket(**changes)  # type: ignore[arg-type]
    with scripted(bucket) as server:
        yield server, bucket
