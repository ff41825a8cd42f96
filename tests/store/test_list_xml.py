"""The stream parser reads a LIST answer as botocore does, and refuses what is not one."""

from typing import Any
from urllib.parse import quote_plus
from xml.sax.saxutils import escape

import botocore.parsers
import botocore.session
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.attrs import ObjectStat
from s3mount.core.listing import ListPage
from s3mount.errors import NotS3, StoreError
from s3mount.store.list_xml import parse_list_page
from s3mount.store.s3 import page_from_botocore

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
PLAIN_KEYS = st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
SECONDS = st.integers(0, 4_000_000_000)

_SHAPE = botocore.session.get_session().get_service_model("s3").operation_model("ListObjectsV2").output_shape


def by_botocore(body: bytes) -> ListPage:
    """What botocore's own parser and key decoding make of a page."""
    parsed: dict[str, Any] = botocore.parsers.RestXMLParser().parse(
        {"body": body, "headers": {}, "status_code": 200}, _SHAPE
    )
    handlers = __import__("botocore.handlers", fromlist=["decode_list_object_v2"])
    handlers.decode_list_object_v2(parsed, context={"encoding_type_auto_set": True})
    return page_from_botocore(parsed)


@st.composite
def pages(draw: st.DrawFn) -> bytes:
    """A page as S3 writes it, with what servers vary: order, whitespace, escaping, extra elements."""
    is_escaped = draw(st.booleans())
    keys = KEYS if is_escaped else PLAIN_KEYS

    def text(key: str) -> str:
        return quote_plus(key, safe="/") if is_escaped else escape(key)

    space = draw(st.sampled_from(["", "\n  "]))
    parts = [f"<EncodingType>url</EncodingType>{space}"] if is_escaped else []
    for key in draw(st.lists(keys, max_size=6)):
        when = draw(st.sampled_from(["2026-11-29T15:25:30.000Z", "1999-02-28T00:00:00Z", "2024-02-29T23:59:59+01:00"]))
        etag = draw(st.sampled_from(['"abc-2"', "&quot;9dd4&quot;", "", "noquotes"]))
        fields = [
            f"<Key>{text(key)}</Key>",
            f"<LastModified>{when}</LastModified>",
            f"<ETag>{etag}</ETag>",
            f"<Size>{draw(st.integers(0, 2**45))}</Size>",
            draw(st.sampled_from(["", "<StorageClass>GLACIER</StorageClass>"])),
            draw(st.sampled_from(["", "<Owner><ID>7</ID></Owner>", "<ChecksumAlgorithm>CRC32</ChecksumAlgorithm>"])),
            draw(
                st.sampled_from(
                    [
                        "",
                        "<RestoreStatus><IsRestoreInProgress>true</IsRestoreInProgress></RestoreStatus>",
                        "<RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress>"
                        "<RestoreExpiryDate>2030-01-01T00:00:00.000Z</RestoreExpiryDate></RestoreStatus>",
                    ]
                )
            ),
        ]
        parts.append(f"<Contents>{space}{space.join(draw(st.permutations(fields)))}{space}</Contents>{space}")
    prefixes = draw(st.lists(keys, max_size=4))
    parts += [f"<CommonPrefixes><Prefix>{text(key)}/</Prefix></CommonPrefixes>{space}" for key in prefixes]
    token = draw(st.sampled_from(["", "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM="]))
    parts.append(f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>{space}")
    parts += [f"<NextContinuationToken>{token}</NextContinuationToken>"] if token else []
    parts = draw(st.permutations(parts))
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="urn:x">'
    return f"{head}{''.join(parts)}</ListBucketResult>".encode()


@given(body=pages())
def test_a_page_is_read_as_botocore_reads_it(body: bytes) -> None:
    """Keys, sizes, times, ETags, classes, restore status, prefixes and tokens are the same."""
    assert parse_list_page(body) == by_botocore(body)


def test_an_empty_page_is_a_page() -> None:
    """KeyCount 0 and no entries is an empty last page."""
    body = b"<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"
    assert parse_list_page(body) == ListPage((), (), None)


def test_control_characters_and_plus_signs_survive() -> None:
    """With url encoding a key may hold anything; a plus sign is a space, %2B is a plus sign."""
    body = (
        b"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated><Contents>"
        b"<Key>a%01+b%2Bc%252F%E2%82%AC</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        b"<ETag>&#34;e&#34;</ETag><Size>3</Size></Contents></ListBucketResult>"
    )
    assert parse_list_page(body).objects == (ObjectStat("a\x01 b+c%2F€", '"e"', 3, 1_767_225_600),)


@given(body=pages(), cut=st.integers(0, 2000))
def test_a_cut_off_answer_is_an_error(body: bytes, cut: int) -> None:
    """A document that ends early is never taken for a short page."""
    if cut < len(body):
        with pytest.raises(StoreError):
            parse_list_page(body[:cut])


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", NotS3),
        (b"<html><body>It works!</body></html>", NotS3),
        (b"hello", NotS3),
        (b"<Error><Code>InternalError</Code></Error>", NotS3),
        (b"<ListBucketResult></ListBucketResult>", StoreError),
        (b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", StoreError),
        (
            b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>x</Size>"
            b"<LastModified>2026-01-01T00:00:00Z</LastModified></Contents></ListBucketResult>",
            StoreError,
        ),
    ],
)
def test_what_is_not_a_page_is_refused(body: bytes, kind: type[StoreError]) -> None:
    """Another document is NotS3; a page with a missing or garbled value is an error, never a guess."""
    with pytest.raises(StoreError) as caught:
        parse_list_page(body)
    assert type(caught.value) is kind
