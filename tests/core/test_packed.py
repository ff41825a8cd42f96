"""Packed entries against the list they were made of."""

import gc
import tracemalloc
from array import array
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from s3mount.core.attrs import ObjectStat
from s3mount.core.keys import is_legal_component
from s3mount.core.listing import Entry, place
from s3mount.core.packed import PackedEntries
from tests.core.strategies import TOKENS, any_text, directory_keys

#: What a million entries may take is 120 MB; 64 bytes an entry are measured.
MAX_BYTES_PER_ENTRY = 120

DIGEST = "0123456789abcdef0123456789abcdef"

any_name = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=40)
close_name = st.lists(st.sampled_from([token for token in TOKENS if "/" not in token]), min_size=1, max_size=4)
names = st.one_of(any_name, close_name.map("".join)).filter(is_legal_component)
etags = st.one_of(
    st.text("0123456789abcdef", min_size=32, max_size=32).map(lambda digest: f'"{digest}"'),
    st.sampled_from(["", '""', '"abc-12"', DIGEST, f'"{DIGEST}-12"', f'"{DIGEST.upper()}"', '"0123456789abcd"']),
    # What bytes.fromhex forgives, and int and \d take for digits:
    st.sampled_from([f'"{" ".join(["00"] * 11)}"', f'"{DIGEST[:-1]}\n"', f'"{DIGEST}"\n', '"' + "\u0661" * 32 + '"']),
    any_text,
)
classes = st.one_of(st.sampled_from(["", "STANDARD", "GLACIER", "DEEP_ARCHIVE"]), any_text)
sizes = st.one_of(st.integers(0, 2**63 - 1), st.sampled_from([0, 1, 2**63 - 1]))
times = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-1, 0, 1_700_000_000]))


def entry_of(key: str, etag: str = '"e"', size: int = 1, mtime_s: int = 2, storage_class: str = "") -> Entry:
    """A file under the last part of its key."""
    return Entry(key.rpartition("/")[2], ObjectStat(key, etag, size, mtime_s, storage_class))


@st.composite
def directories(draw: st.DrawFn) -> tuple[str, list[Entry]]:
    """A directory's key and its entries in any order."""
    directory_key = draw(directory_keys)
    entries = []
    for name in draw(st.lists(names, unique=True, max_size=12)):
        if draw(st.booleans()):
            found = ObjectStat(
                directory_key + name, draw(etags), draw(sizes), draw(times), draw(classes), draw(st.booleans())
            )
            entries.append(Entry(name, found))
        else:
            entries.append(Entry(name, None))
    return directory_key, entries


@settings(max_examples=300)
@given(directories())
@example(("", []))
def test_what_comes_out_is_what_went_in(drawn: tuple[str, list[Entry]]) -> None:
    """Every field of every entry comes back, by iteration and by index from both ends, in a listing's order."""
    packed = PackedEntries(*drawn)
    packed.check_invariants()
    expected = sorted(drawn[1], key=place)
    assert list(packed) == expected
    assert len(packed) == len(expected)
    assert [packed[at] for at in range(len(packed))] == expected
    assert [packed[at - len(packed)] for at in range(len(packed))] == expected
    for entry, given_entry in zip(packed, expected, strict=True):
        assert entry.found is None or type(entry.found.restored) is bool
        assert (entry.found is None) == given_entry.is_directory


@settings(max_examples=150)
@given(directories(), st.slices(14))
def test_a_slice_is_the_slice_of_the_list(drawn: tuple[str, list[Entry]], part: slice) -> None:
    """Any slice, with any step, is a list of the same entries."""
    packed = PackedEntries(*drawn)
    assert packed[part] == sorted(drawn[1], key=place)[part]


@settings(max_examples=200)
@given(directories(), st.lists(names, max_size=5))
def test_a_name_is_found_exactly_if_it_is_there(drawn: tuple[str, list[Entry]], strangers: list[str]) -> None:
    """Each name gives its own entry; another, also one that begins or ends like one, gives nothing."""
    by_name = {entry.name: entry for entry in drawn[1]}
    packed = PackedEntries(*drawn)
    asked = {*by_name, *strangers, ""} | {name[:-1] for name in by_name} | {name + "a" for name in by_name}
    for name in asked:
        assert packed.get(name) == by_name.get(name)


def test_the_order_is_by_code_points() -> None:
    """A name beyond the BMP comes behind U+FF5E, and a prefix where its directory would stand."""
    entries = [Entry(name, None) for name in ("\U0001f600", "\uff5e", "a.txt", "a", "\u00e9", "a-1")]
    assert [entry.name for entry in PackedEntries("", entries)] == [
        "a-1",
        "a.txt",
        "a",
        "\u00e9",
        "\uff5e",
        "\U0001f600",
    ]


def test_a_surrogate_does_no_harm() -> None:
    """A name that S3 cannot have is kept, found and given back like any other."""
    entries = [entry_of("d/a\udcff", etag="\ud800", storage_class="\udfff"), entry_of("d/b")]
    packed = PackedEntries("d/", entries)
    assert list(packed) == entries
    assert packed.get("a\udcff") == entries[0]
    assert packed.get("\udcff") is None


def test_an_entry_is_not_made_before_it_is_asked_for() -> None:
    """What is kept holds no object of the entries it was made of: each answer is a new one."""
    given_entry = entry_of("a")
    packed = PackedEntries("", [given_entry])
    assert packed[0] == given_entry
    assert packed[0] is not given_entry
    assert packed[0] is not packed[0]


@pytest.mark.parametrize("at", [2, -3])
def test_there_is_nothing_beyond_the_ends(at: int) -> None:
    """An index outside raises as a list's does."""
    with pytest.raises(IndexError):
        PackedEntries("", [Entry("a", None), Entry("b", None)])[at]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([Entry("a", None), Entry("b", None), entry_of("d/a")], "the name 'a' is twice in 'd/'"),
        ([entry_of("e/a")], "the object 'e/a' is not 'a' in 'd/'"),
    ],
)
def test_what_is_not_a_directory_is_refused(entries: list[Entry], message: str) -> None:
    """A name given twice and an object of another directory are our own bugs, and say so."""
    with pytest.raises(ValueError, match=message):
        PackedEntries("d/", entries)


@pytest.mark.parametrize(("size", "mtime_s"), [(2**63, 0), (0, 2**63), (0, -(2**63) - 1)])
def test_a_number_beyond_64_bits_is_refused(size: int, mtime_s: int) -> None:
    """A number that does not fit raises; it is not cut."""
    with pytest.raises(OverflowError):
        PackedEntries("", [entry_of("a", '"e"', size, mtime_s)])


def swap_names(packed: PackedEntries) -> None:
    packed._names = packed._names[::-1]


def repeat_a_name(packed: PackedEntries) -> None:
    packed._names = b"aa"


def lose_a_size(packed: PackedEntries) -> None:
    packed._mtimes.pop()


def repeat_a_bound(packed: PackedEntries) -> None:
    packed._name_bounds.insert(1, 0)


def lose_bytes(packed: PackedEntries) -> None:
    packed._etags = packed._etags[:-1]


def start_late(packed: PackedEntries) -> None:
    packed._etag_bounds = array("Q", [1, *packed._etag_bounds[1:]])


@pytest.mark.parametrize("damage", [swap_names, repeat_a_name, lose_a_size, repeat_a_bound, lose_bytes, start_late])
def test_damage_is_noticed(damage: Callable[[PackedEntries], None]) -> None:
    """The invariants hold as it is made, and no longer after any of these."""
    packed = PackedEntries("", [entry_of("a"), entry_of("b")])
    packed.check_invariants()
    damage(packed)
    with pytest.raises(ValueError, match=r"bounds|length|order"):
        packed.check_invariants()


def test_a_million_entries_fit() -> None:
    """An entry with a name of 12 characters and the usual ETag takes at most 120 bytes."""
    n_entries = 200_000
    entries = [entry_of(f"d/{at:08}.jpg", f'"{at:032x}"', at, at, "STANDARD") for at in range(n_entries)]
    gc.collect()
    tracemalloc.start()
    try:
        packed = PackedEntries("d/", entries)
        gc.collect()
        n_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(packed) == n_entries
    assert n_bytes <= MAX_BYTES_PER_ENTRY * n_entries
