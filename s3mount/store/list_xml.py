"""ListObjectsV2's answer → `ListPage`, by a stream parser.

botocore's parser takes 20 to 110 ms of CPU for a page of 1,000 keys, on the one thread that also
answers the kernel; this takes 4 to 6, and 2 where `list_rows` can read the objects (measured).  What it
makes of a page is what botocore makes of it: a test compares them on generated pages.

Source: Amazon S3 API Reference, "ListObjectsV2", response syntax.  Unknown elements are ignored,
the namespace is not looked at (compatible servers differ).
"""

import calendar
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from urllib.parse import unquote_plus
from xml.parsers import expat

from s3mount.core.attrs import ObjectStat
from s3mount.core.listing import ListPage
from s3mount.errors import NotS3, StoreError, StoreFailure
from s3mount.store.list_rows import Rows, read_rows

_ROOT = "ListBucketResult"
#: What fits in stat(2)'s st_size; S3's largest object is far below.
_LARGEST_SIZE = 2**63 - 1
_REFERENCE = re.compile("&([^;]*);?")
#: XML 1.0, section 4.6: all that a document without a DTD has.
_ENTITIES = {"quot": '"', "amp": "&", "apos": "'", "lt": "<", "gt": ">"}
_DATE_LENGTH = len("2026-11-29")
_MINUTE_LENGTH = len("2026-11-29T15:25")
#: Long runs of text come in one callback; keys have at most 1,024 bytes, escaped three times that.
_BUFFER_BYTES = 4096


def parse_list_page(body: bytes) -> ListPage:
    """The page in an answer with status 200.

    Raises:
        NotS3: another document.
        StoreFailure: the document is cut off.
        StoreError: a value is missing or impossible.
    """
    rows = read_rows(body)
    if rows is not None:
        body = rows.rest.encode("utf-8")
    builder = _PageBuilder(rows)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.buffer_size = _BUFFER_BYTES
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    try:
        parser.Parse(body, True)  # noqa: FBT003  expat's own signature
        return builder.page()
    except expat.ExpatError as error:
        if builder.root and builder.root != _ROOT:
            raise NotS3(f"a LIST was answered with <{builder.root}>", operation="ListObjectsV2") from error
        kind = StoreFailure if builder.root else NotS3
        raise kind(f"the answer to a LIST is not a whole document: {error}", operation="ListObjectsV2") from error
    except (KeyError, ValueError, OverflowError) as error:
        raise StoreError(f"a LIST entry lacks or garbles {error}", operation="ListObjectsV2") from error


class _PageBuilder:
    """expat's callbacks: collects the fields of one element at a time."""

    def __init__(self, rows: Rows | None) -> None:
        self._rows = rows
        self.root = ""
        self._top: dict[str, str] = {}
        self._fields = self._top
        self._text = ""
        self._contents: list[dict[str, str]] = []
        self._prefixes: list[str] = []

    def start(self, name: str, _attributes: object) -> None:
        self._text = ""
        if name in ("Contents", "CommonPrefixes"):
            self._fields = {}
        elif not self.root:
            self.root = name

    def text(self, data: str) -> None:
        self._text += data

    def end(self, name: str) -> None:
        if name == "Contents":
            self._contents.append(self._fields)
            self._fields = self._top
        elif name == "CommonPrefixes":
            self._prefixes.append(self._fields["Prefix"])
            self._fields = self._top
        else:
            self._fields[name] = self._text
            self._text = ""

    def page(self) -> ListPage:
        if self.root != _ROOT:
            raise NotS3(f"a LIST was answered with <{self.root}>", operation="ListObjectsV2")
        is_escaped = self._top.get("EncodingType") == "url"
        if self._rows is None:
            objects = tuple(_object(fields, is_escaped=is_escaped) for fields in self._contents)
        else:
            objects = _objects(self._rows.columns, is_escaped=is_escaped)
        if max((found.size for found in objects), default=0) > _LARGEST_SIZE:
            raise ValueError("a size")
        prefixes = tuple(map(unquote_plus, self._prefixes) if is_escaped else self._prefixes)
        is_truncated = self._top["IsTruncated"] == "true"
        return ListPage(objects, prefixes, self._top["NextContinuationToken"] if is_truncated else None)


def _object(fields: dict[str, str], *, is_escaped: bool) -> ObjectStat:
    key = fields["Key"]
    return ObjectStat(
        key=unquote_plus(key) if is_escaped else key,
        etag=fields.get("ETag", ""),
        size=int(fields["Size"]),
        mtime_s=_seconds(fields["LastModified"]),
        storage_class=fields.get("StorageClass", ""),
        restored="RestoreExpiryDate" in fields,
    )


def _objects(columns: tuple[Sequence[str], ...], *, is_escaped: bool) -> tuple[ObjectStat, ...]:
    keys, times, etags, sizes, classes = columns
    seconds = {time: _seconds(time) for time in set(times)}
    known = {name: sys.intern(_text(name)) for name in set(classes)}
    return tuple(
        map(
            ObjectStat,
            [_key(key, is_escaped=is_escaped) if "&" in key or "%" in key or "+" in key else key for key in keys],
            [_text(etag) if "&" in etag else etag for etag in etags],
            map(int, sizes),
            [seconds[time] for time in times],
            [known[name] for name in classes],
        )
    )


def _key(text: str, *, is_escaped: bool) -> str:
    return unquote_plus(_text(text)) if is_escaped else _text(text)


def _text(escaped: str) -> str:
    """A text of the document; raises ValueError for a reference that is not one of XML's own or a number."""
    text = escaped.replace("&quot;", '"')  # of nearly every ETag
    return _REFERENCE.sub(_referent, text) if "&" in text else text


def _referent(reference: re.Match[str]) -> str:
    name = reference[1]
    if name.startswith("#x"):
        return chr(int(name[2:], 16))
    return chr(int(name[1:])) if name.startswith("#") else _ENTITIES[name]


def _seconds(text: str) -> int:
    """Whole seconds of "2026-11-29T15:25:30.123Z", as S3 writes it, or of another ISO 8601 time."""
    if text[_DATE_LENGTH : _DATE_LENGTH + 1] != "T" or text[-1] != "Z":
        return int(datetime.fromisoformat(text).timestamp())
    return _minute(text[:_MINUTE_LENGTH]) + int(text[17:19])


@lru_cache(maxsize=4096)
def _minute(text: str) -> int:
    """Of "2026-11-29T15:25"; the objects of one page share few."""
    return calendar.timegm((int(text[0:4]), int(text[5:7]), int(text[8:10]), int(text[11:13]), int(text[14:16]), 0))
