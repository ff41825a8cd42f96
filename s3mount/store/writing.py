"""The seam to S3 for who writes: what the file system asks of an object store, in our own types.

Every implementation passes the same suite, tests/store/test_writing_conformance.py, which also says where servers
deviate.

Contract for all of them: only `errors.StoreError` and its subclasses leave a method.  An object appears whole or not
at all.  A call that is cancelled, or fails with an error that may pass (`store.retries.may_pass`), may have been done
all the same; it never leaves half an object, but of a multipart upload what is there until somebody aborts it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.ranges import ByteRange
from s3mount.errors import StoreError

#: Bytes of a body, in pieces that are sent one after the other and never joined.
Body = Sequence[bytes | memoryview]

#: S3 API, DeleteObjects: keys in one request.
MAX_DELETES = 1000
#: Of the headers that `Attributes.headers` may name: a mount's own class goes before it; and tags, as a query.
STORAGE_CLASS, TAGS = "x-amz-storage-class", "x-amz-tagging"
#: The others, by the name botocore has for them in answers.
SYSTEM_HEADERS = {
    "content-type": "ContentType",
    "cache-control": "CacheControl",
    "content-disposition": "ContentDisposition",
    "content-encoding": "ContentEncoding",
    "content-language": "ContentLanguage",
    "expires": "ExpiresString",
}


def size_of(body: Body) -> int:
    """Bytes of a body."""
    return sum(map(len, body))


class Condition(NamedTuple):
    """When a key may be written: `ANYTHING`, `NEW`, or the version with this ETag is to be replaced."""

    etag: str = ""
    is_new: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """Of HTTP, RFC 9110."""
        if self.is_new:
            return {"if-none-match": "*"}
        return {"if-match": self.etag} if self.etag else {}


ANYTHING = Condition()
NEW = Condition(is_new=True)


@dataclass(frozen=True)
class Attributes:
    """What an object carries beside its content.

    Attributes:
        headers: some of `SYSTEM_HEADERS`, `STORAGE_CLASS`, `TAGS`.
        metadata: the user's; names in lower case of letters, digits and hyphens, values in printable ASCII without
            blanks at the ends, because they are HTTP headers.  S3 takes 2 KiB of both together.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def storage_class(self) -> str:
        """Empty for the mount's, or the bucket's."""
        return self.headers.get(STORAGE_CLASS, "")

    def with_metadata(self, name: str, value: str) -> "Attributes":
        """The same, and one more."""
        return Attributes(self.headers, {**self.metadata, name: value})


PLAIN = Attributes()


class Written(NamedTuple):
    """A version that is there now; `mtime_s` in whole seconds since the epoch, None where the answer has none."""

    id: ObjectId
    mtime_s: int | None = None


class Description(NamedTuple):
    """What a HEAD tells about one object."""

    stat: ObjectStat
    attributes: Attributes


class Upload(NamedTuple):
    """A multipart upload under way.

    Attributes:
        token: proves that an object came of this upload; empty where it was found by a listing.
        began_s: seconds since the epoch where it was found by a listing; else 0.
    """

    key: str
    upload_id: str
    token: str = ""
    began_s: int = 0


class UploadPage(NamedTuple):
    """Some uploads; `after` is given for the next page, None at the end."""

    uploads: tuple[Upload, ...]
    after: Upload | None


class Part(NamedTuple):
    """A part that S3 has; `checksum` is empty where it computed none."""

    number: int
    etag: str
    size: int
    checksum: str = ""


class PartPage(NamedTuple):
    """Some parts in order; `after` is given for the next page, None at the end."""

    parts: tuple[Part, ...]
    after: int | None


class Writer(Protocol):
    """Everything that changes a bucket."""

    async def put(
        self, key: str, body: Body, condition: Condition = ANYTHING, attributes: Attributes = PLAIN, offset: int = 0
    ) -> Written:
        """A whole object in one request; at most 5 GiB.

        With an offset the end of one: of the version in the condition, which has that size; only in directory buckets.

        Raises:
            AlreadyExists: the condition is `NEW`, and there is one.
            ObjectChanged: the version to be replaced is not there.
            AccessDenied, StorageFull, KeyTooLong, ObjectTooLarge (also appended to too often), and what may pass.
            NotSupported: the server has no conditions.
        """
        ...

    async def upload_part(self, upload: Upload, number: int, body: Body) -> Part:
        """One part, numbered from 1.

        Raises:
            UploadNotFound: it was completed or aborted.  Otherwise as `put`.
        """
        ...

    async def create_upload(self, key: str, attributes: Attributes = PLAIN) -> Upload:
        """Begin a multipart upload.  Repeated, it leaves one that `list_uploads` finds."""
        ...

    async def copy_part(self, upload: Upload, number: int, source: ObjectId, span: ByteRange) -> Part:
        """A part that S3 takes from an object itself.

        Raises:
            ObjectChanged: the source has another version, or is gone.  Otherwise as `upload_part`.
        """
        ...

    async def complete(self, upload: Upload, parts: Sequence[Part], condition: Condition = ANYTHING) -> Written:
        """Make the object of parts, in order of their numbers.

        Raises:
            As `put`, and UploadNotFound.  After AlreadyExists or ObjectChanged the upload may be there still.
        """
        ...

    async def abort(self, upload: Upload) -> None:
        """Drop an upload and its parts; well, too, if it is gone already."""
        ...

    async def list_uploads(self, prefix: str, after: Upload | None = None) -> UploadPage:
        """Uploads under way, of anybody, to keys that start with `prefix`."""
        ...

    async def list_parts(self, upload: Upload, after: int = 0) -> PartPage:
        """Parts that S3 has, with numbers greater than `after`.

        Raises:
            UploadNotFound: it was completed or aborted.
        """
        ...

    async def copy(
        self, source: ObjectStat, key: str, condition: Condition = ANYTHING, attributes: Attributes | None = None
    ) -> Written:
        """A whole object by one request, of at most 5 GiB; `store.copying` copies larger ones, and faster.

        The copy has the source's tags, and unless the mount has one its storage class (`ObjectStat.kept_class`).

        Args:
            attributes: instead of the source's.

        Raises:
            ObjectChanged: the source has another version or is gone, or the one to be replaced is not there.
            Otherwise as `put`.
        """
        ...

    async def describe(self, key: str, *, has_tags: bool = False) -> Description:
        """One object with its attributes.

        Args:
            has_tags: `TAGS` are among them, if they may be read; a second request if there are any.

        Raises:
            ObjectNotFound: no such key.
        """
        ...

    async def delete(self, key: str, condition: Condition = ANYTHING) -> None:
        """Delete an object; well, too, if there is none.  Raises ObjectChanged: the condition does not hold."""
        ...

    async def delete_many(self, keys: Sequence[str]) -> dict[str, StoreError]:
        """Delete at most `MAX_DELETES` objects.

        Returns:
            What went wrong, by key; empty when all are gone.
        """
        ...
