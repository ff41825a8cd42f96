"""Keys and the names the kernel uses for their components."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.keys import (
    MAX_KEY_BYTES,
    child_key,
    fits_in_key,
    is_directory_key,
    is_legal_component,
    is_text,
    just_before,
    name_from_kernel,
    name_to_kernel,
    split_key,
)
from s3mount.errors import InvalidName
from tests.core.strategies import any_text


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a\0b", b"\0", b"a/b", b"/", b"..\0"])
def test_a_name_no_key_can_have_is_invalid(name: bytes) -> None:
    """Empty, dot, dot-dot, a NUL or a slash are refused before any request."""
    with pytest.raises(InvalidName):
        name_from_kernel(name)


@pytest.mark.parametrize("name", [b"\xff", b"caf\xe9", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf0\x9f\x98"])
def test_a_name_that_is_not_utf8_is_invalid(name: bytes) -> None:
    """Latin-1, lone surrogates, overlong and broken sequences stand for no key, and the message is printable."""
    with pytest.raises(InvalidName, match="is not UTF-8") as caught:
        name_from_kernel(name)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["...", " ", "\\", "a\nb", "\x01", "-", "~", ".a", "e\u0301", "\u00e9", "\U0001f600"])
def test_an_odd_name_is_legal(name: str) -> None:
    """Everything else is an ordinary name: the backslash, control characters, composed and combining."""
    assert is_legal_component(name)
    assert name_from_kernel(name.encode()) == name


@given(any_text)
def test_a_legal_component_survives_the_kernel(component: str) -> None:
    """The kernel's bytes for a component name the same component again; the others are refused."""
    if is_legal_component(component) and "/" not in component:
        assert name_from_kernel(name_to_kernel(component)) == component
    else:
        with pytest.raises(InvalidName):
            name_from_kernel(component.encode())


@given(st.binary(max_size=12))
def test_bytes_are_a_legal_name_or_invalid(name: bytes) -> None:
    """No bytes from the kernel give a component that the listing would hide, or another name than asked."""
    try:
        component = name_from_kernel(name)
    except InvalidName:
        return
    assert is_legal_component(component)
    assert "/" not in component
    assert name_to_kernel(component) == name


@given(any_text)
def test_a_directory_key_is_empty_or_ends_in_a_slash(key: str) -> None:
    """The root's key is empty; every other directory's ends in the separator, a file's never does."""
    assert is_directory_key("")
    assert is_directory_key(key + "/")
    assert is_directory_key(key) == (key[-1:] in ("", "/"))


@given(any_text, any_text.filter(lambda name: is_legal_component(name) and "/" not in name))
def test_a_child_s_key_extends_its_directory_s(directory: str, name: str) -> None:
    """A child's key is the directory's and the name, and is a file's until the separator is added."""
    child = child_key(directory + "/", name)
    assert child == f"{directory}/{name}"
    assert not is_directory_key(child)


@pytest.mark.parametrize("character", ["a", "\u00e9", "\u4e2d", "\U0001f600"])
def test_a_key_is_measured_in_bytes(character: str) -> None:
    """1,024 bytes of UTF-8 fit, one more does not, however many characters they are."""
    width = len(character.encode())
    longest = character * (MAX_KEY_BYTES // width)
    longest += "x" * (MAX_KEY_BYTES - len(longest.encode()))
    assert fits_in_key(longest)
    assert not fits_in_key(longest + "x")


@pytest.mark.parametrize(("path", "parts"), [("a", ("", "a")), ("a/b", ("a/", "b")), ("a/b/c", ("a/b/", "c"))])
def test_a_path_is_a_directory_and_a_name(path: str, parts: tuple[str, str]) -> None:
    """The root's directory key is empty, every other ends in a slash."""
    assert split_key(path) == parts


@given(any_text.filter(bool))
def test_just_before_a_key(key: str) -> None:
    """The text for StartAfter sorts before the key and after the shorter ones, and can be sent."""
    before = just_before(key)
    assert before.encode("utf-8", "surrogatepass") < key.encode("utf-8", "surrogatepass")
    assert not any(0xD800 <= ord(character) <= 0xDFFF for character in before[len(key) - 1 :])
    for neighbour in (key[:-1], just_before(key)[:-1]):
        assert neighbour <= before


@pytest.mark.parametrize(
    ("key", "before"), [("b", "a\U0010fffd"), ("d/", "d.\U0010fffd"), ("\ue000", "\ud7ff\U0010fffd"), ("x\0", "x")]
)
def test_just_before_is_the_character_before(key: str, before: str) -> None:
    """The last character goes down by one, over the gap that holds no characters; nothing is below a NUL."""
    assert just_before(key) == before


def test_what_is_text() -> None:
    """A path with bytes that are no UTF-8 is told from one with characters only."""
    assert all(map(is_text, ["", "a/b", "ü/\U0001f600", "\ue000"]))
    assert not any(map(is_text, [os.fsdecode(b"a\xff"), "a\ud800b"]))
