"""What CI makes of tests that failed: .ci/parts, with a program in place of pytest."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: One part of three fails with CODE after printing SAID; a run of single tests ends with ENDS.
FAKE = """#!/bin/bash
case "$*" in
    *::*) echo "again $*" ; exit "$ENDS" ;;
    *test_writing_programs.py*--ignore* | *--ignore*) exit 0 ;;
    *test_writing_programs.py*) printf '%b' "$SAID"; exit "$CODE" ;;
esac
"""


@pytest.mark.parametrize(
    ("said", "code", "again", "expected", "n_again"),
    [
        ("", 0, 1, 0, 0),
        ("FAILED tests/mount/test_a.py::test_b[c d] - e - f\n", 1, 0, 0, 3),
        ("FAILED tests/mount/test_a.py::test_b - e\nFAILED tests/test_a.py::test_c\n", 1, 0, 0, 3),
        ("FAILED tests/mount/test_a.py::test_b - e\n", 1, 1, 1, 1),
        ("FAILED tests/a.py::b\nFAILED tests/a.py::c\nFAILED tests/a.py::d\n", 1, 0, 1, 0),
        ("FAILED tests/a.py::b\nERROR tests/a.py::c - the fixture\n", 1, 0, 1, 0),
        ("FAILED tests/a.py::b\n", 2, 0, 1, 0),
        ("", 1, 0, 1, 0),
    ],
    ids=["none", "one", "two", "again", "three", "error", "interrupted", "nameless"],
)
def test_tests_that_fail_beside_others(
    tmp_path: Path, said: str, code: int, again: int, expected: int, n_again: int
) -> None:
    """One or two run again, three times; whatever else is wrong, or fails again, fails the run; all is printed."""
    fake = tmp_path / "python"
    fake.write_text(FAKE, encoding="ascii")
    fake.chmod(0o755)
    env = {"PATH": "/usr/bin:/bin", "SAID": said, "CODE": str(code), "ENDS": str(again)}
    ran = subprocess.run([ROOT / ".ci/parts", fake], env=env, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == expected, ran.stdout + ran.stderr
    assert said in ran.stdout
    assert ran.stdout.count("again -m pytest") == n_again
