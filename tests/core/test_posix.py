"""Modes, owners and times in metadata: what is written is read, and what others wrote is never an error."""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.posix import NOTHING_SAID, Posix, formatted, parsed

ids = st.none() | st.integers(0, (1 << 32) - 2)
saids = st.builds(
    Posix, st.none() | st.integers(0, 0o1777), ids, ids,
    st.none() | st.integers(-9_000_000_000, 9_000_000_000),
)  # fmt: skip


@given(saids, st.booleans())
def test_what_is_written_is_read(said: Posix, is_link: bool) -> None:  # noqa: FBT001
    """Metadata that was written says the same when it is read, and is ASCII that a header may have."""
    metadata = formatted(said, is_link=is_link)
    assert parsed(metadata) == said
    assert all(value.isascii() and value.isprintable() and value.strip() == value for value in metadata.values())


@given(st.dictionaries(st.sampled_from(["mode", "uid", "gid", "mtime", "atime"]), st.text() | st.integers().map(str)))
def test_any_value_is_read(metadata: dict[str, str]) -> None:
    """Whatever other clients wrote is read without an error, and gives what a kernel can show."""
    found = parsed(metadata)
    assert found.mode is None or 0 <= found.mode <= 0o1777
    assert all(each is None or 0 <= each < (1 << 32) - 1 for each in (found.uid, found.gid))
    assert found.mtime_s is None or abs(found.mtime_s * 10**9) < 1 << 63


@given(st.integers(0, 0o7777))
def test_modes_of_peers(bits: int) -> None:
    """A mode in decimal as s3fs writes it and in octal as rclone does is the same mode, without set-id bits."""
    for text in str(stat.S_IFREG | bits), f"{stat.S_IFREG | bits:o}", f"0{stat.S_IFREG | bits:o}":
        assert parsed({"mode": text}).mode == bits & 0o1777


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("644", 0o644), ("0644", 0o644), ("0o755", 0o755), ("1777", 0o1777), (" 33188 ", 0o644), ("4755", 0o755),
        ("0", None), ("0000", None), ("7", None), ("", None), ("rw-r--r--", None), ("999", None), ("-644", None),
        ("16877", None), ("40755", None), ("1e3", None), ("\u0661\u0662\u0663", None), ("9" * 100, None),
    ],
)  # fmt: skip
def test_modes_without_a_kind(text: str, mode: int | None) -> None:
    """Three or four octal digits are a mode; a directory's, an empty one and what is no number say nothing."""
    assert parsed({"mode": text}).mode == mode


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1700000000", 1_700_000_000), ("1700000000.123456789", 1_700_000_000), ("1.", 1), ("-1.5", -2), ("-1.0", -1),
        ("0", 0), ("", None), (".5", None), ("1e9", None), ("2020-01-01T00:00:00Z", None), ("nan", None),
        ("9999999999", None),
    ],
)  # fmt: skip
def test_times(text: str, seconds: int | None) -> None:
    """A fraction is cut off, as the rest of the file system does; what is no time says nothing."""
    assert parsed({"mtime": text}).mtime_s == seconds


def test_what_is_said_otherwise() -> None:
    """What is the same here and there is not said; set-id bits and times beyond the kernel's cannot be written."""
    assert Posix(0o600, 1, 2).unlike(Posix(0o644, 1, 3)) == Posix(0o600, None, 2)
    assert Posix(0o4755, 0, 0, 10**11).as_kept == Posix(0o755, 0, 0)
    assert formatted(NOTHING_SAID) == {}
