"""docs/semantics.md and the tests say the same."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

_ROOT = Path(__file__).parents[2]
_DOCUMENT = _ROOT / "docs/semantics.md"
_PROMISE = re.compile(r"^(?P<number>\d+)\. (?P<text>.+?)\s+`(?P<file>tests/\S+\.py)::(?P<test>\w+)`$", re.M | re.S)


class Promise(NamedTuple):
    number: int
    text: str
    file: str
    test: str


def _promises() -> list[Promise]:
    """Each numbered paragraph; one that does not end in a test's name takes the next one's and fails."""
    found = _PROMISE.finditer(_DOCUMENT.read_text(encoding="utf-8"))
    return [Promise(int(each["number"]), _one_line(each["text"]), each["file"], each["test"]) for each in found]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _docstrings(file: str) -> dict[str, str]:
    """The docstring of every test function in a file of the tree."""
    tree = ast.parse((_ROOT / file).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {each.name: _one_line(ast.get_docstring(each) or "") for each in functions if each.name.startswith("test_")}


def test_promises_are_numbered() -> None:
    """The promises are numbered from 1 on, and every numbered paragraph is one of them."""
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", _DOCUMENT.read_text(encoding="utf-8"), re.M)]
    assert numbers == [promise.number for promise in _promises()] == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 40


@pytest.mark.parametrize("promise", _promises(), ids=lambda promise: str(promise.number))
def test_a_promise_is_quoted_by_its_test(promise: Promise) -> None:
    """The test that a promise names exists, and its docstring quotes the promise word for word."""
    assert promise.text in _docstrings(promise.file).get(promise.test, "no such test")


def test_every_test_of_the_semantics_proves_a_promise() -> None:
    """tests/mount/test_semantics.py tests nothing that is not promised."""
    file = "tests/mount/test_semantics.py"
    assert _docstrings(file).keys() == {promise.test for promise in _promises() if promise.file == file}
