"""The text of errors, and the way out of nested groups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.errors import AccessDenied, ObjectNotFound, StoreError, WrongRegion, sole_cause


def test_a_store_error_names_what_was_asked_for() -> None:
    """Operation, bucket, key and request id follow the message, each by name."""
    error = ObjectNotFound("gone", bucket="b", key="d/a", operation="GetObject", request_id="4442587FB7D0A2F9")
    assert str(error) == "gone (operation=GetObject bucket=b key='d/a' request-id=4442587FB7D0A2F9)"


def test_what_is_unknown_is_left_out() -> None:
    """Facts that are empty do not show, and without any the message stands alone."""
    assert str(StoreError("no answer")) == "no answer"
    assert str(StoreError("no answer", key="a")) == "no answer (key='a')"
    assert str(WrongRegion("elsewhere", region="eu-west-1", bucket="b")) == "elsewhere (bucket=b)"


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("a\nb", r"'a\nb'"),
        ("\x1b[31mred", r"'\x1b[31mred'"),
        ("a\x85b\u2028c", r"'a\x85b\u2028c'"),
        ("\u202egnp", r"'\u202egnp'"),
        ("it's", '''"it's"'''),
        ("back\\slash", r"'back\\slash'"),
        ("\u00e9\U0001f600", "'\u00e9\U0001f600'"),
    ],
)
def test_a_key_is_shown_escaped(key: str, shown: str) -> None:
    """Newlines, terminal codes and direction marks are escaped; letters of any script are not."""
    assert str(StoreError("gone", key=key)) == f"gone (key={shown})"


@given(*[st.text(max_size=12)] * 5)
def test_the_text_is_always_one_printable_line(
    message: str, bucket: str, key: str, operation: str, request_id: str
) -> None:
    """Nothing that S3, a proxy or a user wrote can break the line or reach the terminal as a code."""
    error = AccessDenied(message, bucket=bucket, key=key, operation=operation, request_id=request_id)
    text = str(error)
    assert text.isprintable()
    assert len(text.splitlines()) <= 1
    assert not message.isprintable() or text.startswith(message)


def test_a_message_of_s3_with_lines_is_one_line() -> None:
    """The message of an answer that is an HTML page of many lines stays readable on one."""
    assert str(StoreError("S3 answered 502: <html>\r\n\tBad", key="a")) == (
        r"S3 answered 502: <html>\r\n\tBad (key='a')"
    )


@given(st.integers(0, 4))
def test_the_sole_cause_is_inside_groups_of_one(depth: int) -> None:
    """However deep nurseries nested it, the one exception is found."""
    cause = StoreError("the cause")
    error: BaseException = cause
    for level in range(depth):
        error = BaseExceptionGroup(f"level {level}", [error])
    assert sole_cause(error) is cause


def test_several_causes_stay_a_group() -> None:
    """A group of two is not reduced to one of them, but the groups of one around it go."""
    pair = ExceptionGroup("two", [StoreError("one"), ValueError("other")])
    assert sole_cause(ExceptionGroup("outer", [pair])) is pair
    assert sole_cause(KeyboardInterrupt()).__class__ is KeyboardInterrupt
