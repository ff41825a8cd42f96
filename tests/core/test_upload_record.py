"""The record of multipart uploads, as text."""

from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.upload_record import RecordedUpload, began, ended, under_way

UPLOADS = st.builds(
    RecordedUpload, st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8), st.integers(0, 2_000_000_000)
)


@given(st.lists(UPLOADS, unique_by=lambda each: each.upload_id), st.data())
def test_what_began_and_did_not_end(uploads: list[RecordedUpload], data: st.DataObject) -> None:
    """What is under way is what began and has no end, in the order it began, whatever keys and ids look like."""
    done = {each.upload_id for each in uploads if data.draw(st.booleans())}
    content = b"".join([*map(began, uploads), *map(ended, done)])
    assert under_way(content) == [each for each in uploads if each.upload_id not in done]


@given(st.lists(UPLOADS, min_size=2, unique_by=lambda each: each.upload_id), st.data())
def test_a_line_that_was_cut_off(uploads: list[RecordedUpload], data: st.DataObject) -> None:
    """A line that a full disk cut off anywhere, or that is no record, hides no other."""
    first, *others = uploads
    cut = began(first)[: data.draw(st.integers(0, len(began(first)) - 1))]
    nonsense = data.draw(st.sampled_from([b"", b"\n[]", b"\n{}", b'\n{"id": "x"}', b"\n\xff"]))
    assert under_way(cut + nonsense + b"".join(map(began, others))) == others
