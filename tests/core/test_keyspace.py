"""Guesses: names as numbers, and how far the pages seen reach."""

from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.keyspace import KeySpace, Survey
from tests.core.strategies import any_text

#: Names that look like those of a data set, and any text beside them.
names = st.one_of(st.from_regex(r"[a-c]?[0-9]{1,4}[_/.]?[0-9a-f]{0,4}", fullmatch=True), any_text.filter(bool))
samples = st.sets(names, min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("sample", "name", "following"),
    [
        (["n01440764_10026.JPEG", "n01440764_99.JPEG", "n01440765_7.JPEG"], "n01440764_99999", "n01440765_00000"),
        (["2024-01-01", "2024-01-12"], "2024-09-99", "2024-10-00"),
        (["0f", "1e", "2d"], "9f", "a0"),
        (["00", "01"], "09", "10"),
        (["aZ", "b7"], "az", "b0"),
        (["AA", "QZ"], "BZ", "CA"),
        (["part-00001-of-00100", "part-00002-of-00100"], "part-09999-of-00100", "part-10000"),
    ],
)  # fmt: skip
def test_adding_carries(sample: list[str], name: str, following: str) -> None:
    """One more than a name is the next one in the alphabets of the sample, across separators."""
    space = KeySpace(sample)
    assert space.name(space.number(name) + 1) == following


@given(samples, names, names)
def test_numbers_rise_with_the_names(sample: set[str], a: str, b: str) -> None:
    """A greater name never has a smaller number, whether its characters were seen or not."""
    space = KeySpace(sample)
    low, high = sorted([a, b])
    assert space.number(low) <= space.number(high)


@given(samples, st.data())
def test_a_number_has_one_name(sample: set[str], data: st.DataObject) -> None:
    """Every number up to the greatest has a name with just that number; the one after it has none."""
    space = KeySpace(sample)
    top = space.number("\U0010ffff")
    assert space.name(top) is None
    assert space.name(-1) is None
    number = data.draw(st.integers(0, top - 1))
    name = space.name(number)
    assert name is not None
    assert space.number(name) == number


@given(
    st.lists(st.lists(names, min_size=1, max_size=5).map(sorted), max_size=4),
    names, st.none() | names, st.floats(0, 100), st.sampled_from(["", "/"]),
)  # fmt: skip
def test_a_guess_lies_strictly_between(
    pages: list[list[str]], low: str, high: str | None, distance: float, delimiter: str
) -> None:
    """A guess is after `low`, before `high`, below the prefix, a text that S3 takes, and in no directory."""
    survey = Survey("p/", delimiter)
    for page in pages:
        survey.add(["p/" + name for name in page])
        survey.check_invariants()
    upper = None if high is None else "p/" + high
    assert upper is None or survey.pages_between("p/" + low, upper) >= 0
    guess = survey.beyond("p/" + low, distance, upper)
    if guess is not None:
        assert guess.encode("utf-8")
        assert guess.startswith("p/")
        assert "p/" + low < guess
        assert upper is None or guess < upper
        assert not delimiter or delimiter not in guess[2:]


def test_nothing_seen_is_no_guess() -> None:
    """Without a page, and where all names are the same number, there is neither distance nor guess."""
    survey = Survey("", "/")
    assert survey.beyond("a", 8, None) is None
    assert survey.pages_between("a", "b") == 0
    survey.add(["same"])
    assert survey.beyond("same", 8, None) is None
    assert survey.pages_between("same", "same") == 0


def test_directories_are_names_too() -> None:
    """The slash that ends a common prefix is no part of its name, and no guess holds it."""
    survey = Survey("p/", "/")
    for page in range(10):
        survey.add([f"p/d{number:04d}{'/' if number % 4 else ''}" for number in range(page * 10, page * 10 + 10)])
    guess = survey.beyond("p/d0099/", 8, None)
    assert guess is not None
    assert "p/d0160" < guess < "p/d0190"
    assert len(guess) == len("p/d0000")


def test_alphabets_grow_with_the_pages() -> None:
    """A character that varies only in later pages counts for the guesses after them."""
    survey = Survey("", "/")
    for letter in "abcdefghi":
        survey.add([f"{letter}{digit}" for digit in range(10)])
        survey.beyond("a0", 1, None)
    guess = survey.beyond("i9", 1, None)
    assert guess is not None
    assert guess > "i9"


def test_a_guess_between_a_directory_and_its_name() -> None:
    """`d-` sorts after the name `d`, and before the directory `d/`: it is no guess beyond that."""
    survey = Survey("", "/")
    survey.add(["a-/", "b/", "c-/", "d/"])
    for pages in range(1, 64):
        guess = survey.beyond("a/", pages / 16, None)
        assert guess is None or guess > "a/"


BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def named(kind: str, count: int) -> list[str]:
    """Names as data sets have them, in order."""
    random = Random(7)
    classes = sorted(random.sample(range(1440764, 15075141), max(1, count // 1300)))
    some = {
        "padded": lambda number: f"{number:08d}.jpg",
        "unpadded": lambda number: f"{number}.jpg",
        "hex": lambda _: f"{random.getrandbits(64):016x}",
        "uuid": lambda _: f"{UUID(int=random.getrandbits(128), version=4)}.png",
        "classes": lambda number: f"n{classes[number % len(classes)]:08d}_{number}.JPEG",
        "base62": lambda _: "".join(random.choices(BASE62, k=10)),
        "subtree": lambda number: f"d{number // 100:04d}/f{number % 100:02d}",
    }
    return sorted({some[kind](number) for number in range(count)})


@pytest.mark.parametrize("kind", ["padded", "unpadded", "hex", "uuid", "classes", "base62", "subtree"])
def test_a_guess_lands_about_where_it_should(kind: str) -> None:
    """After 10 of 100 pages, 8 pages further is between 3 and 16 pages further."""
    keys = named(kind, 20_000)
    size = len(keys) // 100
    survey = Survey("", "")
    for at in range(0, size * 10, size):
        survey.add(keys[at : at + size])
    guess = survey.beyond(keys[size * 10 - 1], 8, None)
    assert guess is not None
    pages = sum(keys[size * 10] <= key <= guess for key in keys) / size
    assert 3 < pages < 16
    assert survey.pages_between(keys[size * 10 - 1], guess) == pytest.approx(8, rel=0.05)
