"""The rows of a page by one expression: the same as by the parser, or left to the parser."""

from urllib.parse import quote_plus
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.errors import StoreError
from s3mount.store import list_xml
from s3mount.store.list_rows import read_rows
from s3mount.store.list_xml import parse_list_page

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
PLAIN_KEYS = st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
ETAGS = st.sampled_from(["&quot;9dd4e461268c8034f5c8564e155c67a6&quot;", '"abc-2"', "", "&#34;x&#x22;", "a&amp;b"])
TIMES = st.sampled_from(["2026-11-29T15:25:30.000Z", "1999-02-28T00:00:00Z", "2024-02-29T23:59:59+01:00"])
CLASSES = st.sampled_from(["STANDARD", "GLACIER", "x&lt;y"])
FIELDS = ["Key", "LastModified", "ETag", "Size", "StorageClass", "ChecksumAlgorithm"]


def page(rows: list[str], tail: str = "", *, is_escaped: bool = True) -> bytes:
    kind = "<EncodingType>url</EncodingType>" if is_escaped else ""
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="urn:x">{kind}'
    return f"{head}{''.join(rows)}{tail}<IsTruncated>false</IsTruncated></ListBucketResult>".encode()


def row(fields: dict[str, str]) -> str:
    return "<Contents>" + "".join(f"<{name}>{text}</{name}>" for name, text in fields.items()) + "</Contents>"


@st.composite
def uniform_pages(draw: st.DrawFn) -> bytes:
    """Rows of one shape, as a server writes them."""
    is_escaped = draw(st.booleans())
    order = draw(st.permutations(FIELDS))
    lacking = draw(st.sets(st.sampled_from(["ETag", "StorageClass", "ChecksumAlgorithm"])))
    rows = []
    for key in draw(st.lists(KEYS if is_escaped else PLAIN_KEYS, min_size=1, max_size=5)):
        values = {
            "Key": quote_plus(key, safe="/") if is_escaped else escape(key),
            "LastModified": draw(TIMES),
            "ETag": draw(ETAGS),
            "Size": str(draw(st.integers(0, 2**45))),
            "StorageClass": draw(CLASSES),
            "ChecksumAlgorithm": "CRC32",
        }
        rows.append(row({name: values[name] for name in order if name not in lacking}))
    prefixes = draw(st.lists(st.sampled_from(["a/", "b%20c/"]), max_size=2))
    tail = "".join(f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>" for each in prefixes)
    return page(rows, tail, is_escaped=is_escaped)


@given(body=uniform_pages())
def test_rows_read_as_the_parser_reads_them(body: bytes) -> None:
    """A page of uniform rows gives the same with a comment between the rows, where the parser has to read it."""
    spaced = body.replace(b"</Contents>", b"</Contents><!-- -->")
    assert read_rows(spaced) is None or spaced.count(b"<Contents>") == 1
    assert parse_list_page(body) == parse_list_page(spaced)


def test_uniform_rows_are_read_at_once() -> None:
    """What S3 sends is read by the expression, not by the parser."""
    fields = dict.fromkeys(FIELDS, "x") | {"Size": "1", "LastModified": "2026-11-29T15:25:30.000Z"}
    rows = read_rows(page([row(fields)] * 3, "<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes>"))
    assert rows is not None
    assert [len(column) for column in rows.columns] == [3] * 5
    assert "Contents" not in rows.rest
    assert "<Prefix>p/</Prefix>" in rows.rest


GOOD = {"Key": "a", "LastModified": "2026-11-29T15:25:30.000Z", "ETag": "e", "Size": "1"}


@pytest.mark.parametrize(
    "body",
    [
        page([]),
        page([row(GOOD), row(dict(reversed(GOOD.items())))]),
        page([row(GOOD), row(GOOD | {"RestoreStatus": "<IsRestoreInProgress>true</IsRestoreInProgress>"})]),
        page([row(GOOD), "\n", row(GOOD)]),
        page([row(GOOD), "<!-- a comment -->", row(GOOD)]),
        page([row(GOOD | {"Key": "a\x01b"})]),
        page([row(GOOD | {"Key": "<![CDATA[a]]>"})]),
        page([row({"Key": "a", "Size": "1"})]),
        page([row(GOOD).replace("<Size>", "<Key>b</Key><Size>")]),
        page([row(GOOD)]).replace(b"<Key>a", b"<Key>\xff"),
        page([row(GOOD)])[:150],
    ],
    ids=[
        "none", "another order", "a restore status", "blanks", "a comment", "a control character", "cdata",
        "a field lacks", "a field twice", "not UTF-8", "cut off",
    ],
)  # fmt: skip
def test_everything_else_is_left_to_the_parser(body: bytes) -> None:
    """A page that the expression might read otherwise than XML does is not read by it."""
    assert read_rows(body) is None


@pytest.mark.parametrize("text", ["&nbsp;", "&", "&#xzz;", "&#;", "&#99999999999;"])
def test_a_reference_that_is_none_is_an_error(text: str) -> None:
    """An entity that XML does not have by itself garbles the answer, as it does for the parser."""
    for body in (page([row(GOOD | {"ETag": text})] * 2), page([row(GOOD | {"ETag": text}), "\n", row(GOOD)])):
        with pytest.raises(StoreError, match=r"garbles|not a whole document"):
            parse_list_page(body)


def test_numbers_and_names_of_characters() -> None:
    """The references that XML has by itself are what they stand for."""
    assert list_xml._text("&lt;&gt;&amp;&apos;&quot;&#65;&#x42;&amp;lt;") == "<>&'\"AB&lt;"


@pytest.mark.parametrize("gap", ["", " "])
def test_a_size_that_no_file_can_have_is_an_error(gap: str) -> None:
    """A store that names a size of 2**63 bytes or more garbles its answer."""
    with pytest.raises(StoreError, match=r"garbles|not a whole document"):
        parse_list_page(page([row(GOOD), gap, row(GOOD | {"Size": str(2**63)})]))
