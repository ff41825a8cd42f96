"""The documents say what the program does: flags, variables, exit codes, messages, links."""

import ast
import errno
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from s3mount.cli.configfile import PATH_KEYS
from s3mount.cli.mount import main
from s3mount.daemon import exits
from s3mount.fuse import boundary

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CONFIGURATION = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
TROUBLESHOOTING = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
#: Messages are found by their words between the placeholders; shorter ones say nothing.
MIN_FRAGMENT = 12


def table_rows(text: str) -> list[list[str]]:
    rows = [line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


def without_code(text: str) -> str:
    """The text without fenced and indented code, where nothing is a link or a heading."""
    return re.sub(r"^(    [^\n]*|```.*?^```)$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors_of(document: Path) -> set[str]:
    """The anchors that GitHub makes of headings."""
    text = without_code(document.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_flag_is_documented() -> None:
    """The command's flags and those in the first cells of configuration.md's tables are the same."""
    cells = [row[0] for row in table_rows(CONFIGURATION)]
    documented = {flag for cell in cells for flag in re.findall(r"`(-{1,2}[a-z][a-z-]*)", cell)}
    with click.Context(main, **main.context_settings) as context:
        real = {flag for option in main.get_params(context) for flag in option.opts if flag.startswith("-")}
    assert documented == real


def test_every_default_is_documented() -> None:
    """What --help shows as a fixed default of a text or number stands in the flag's row."""
    rows = {cell: " | ".join(row[1:]) for row in table_rows(CONFIGURATION) for cell in re.findall(r"--[a-z-]+", row[0])}
    shown = {option.opts[-1]: option.default for option in main.params if getattr(option, "show_default", False)}
    assert len(shown) >= 4
    missing = [flag for flag, value in shown.items() if str(value).removesuffix(".0") not in rows[flag]]
    assert missing == []


def test_every_variable_is_documented() -> None:
    """Each environment variable that the command reads has its place in the table of variables."""
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "s3mount/cli").glob("*.py"))
    read = set(re.findall(r'"((?:AWS|NOTIFY)_[A-Z0-9_]+)"', source))
    assert "AWS_MAX_ATTEMPTS" in read
    _, _, section = CONFIGURATION.partition("## Environment variables")
    documented = {name for row in table_rows(section) for name in re.findall(r"`([A-Z0-9_]+)`", row[0])}
    assert read <= documented


def test_every_key_of_a_section_is_documented() -> None:
    """The table of what a section for paths may say has the keys that it may, in the program's order."""
    _, _, section = CONFIGURATION.partition("### Sections for paths")
    section = section.partition("\n## ")[0]
    assert [row[0].strip("`") for row in table_rows(section)[2:]] == list(PATH_KEYS)


def test_every_exit_code_is_documented() -> None:
    """operations.md has one row for each exit code, in order, with a meaning and what to do."""
    _, _, section = OPERATIONS.partition("## Exit codes")
    rows = [row for row in table_rows(section) if row[0].isdigit()]
    assert [int(row[0]) for row in rows] == [int(code) for code in exits.ExitCode]
    assert all(len(row) == 3 and row[1] and row[2] for row in rows)


@pytest.mark.parametrize("verdict", exits.TABLE.values(), ids=lambda verdict: verdict.advice[:30] or "none")
def test_every_advice_is_explained(verdict: exits.Verdict) -> None:
    """What the failed command advises is quoted in troubleshooting.md."""
    assert verdict.advice in TROUBLESHOOTING


def test_every_errno_is_explained() -> None:
    """Each errno a program can get has a heading in troubleshooting.md that names it."""
    headings = " ".join(re.findall(r"^### (.*)$", TROUBLESHOOTING, flags=re.MULTILINE))
    names = {errno.errorcode[answer.errno] for answer in boundary.TABLE.values()}
    assert {name for name in names if not re.search(rf"\b{name}\b", headings)} == set()


def fragments(path: Path) -> Iterator[str]:
    """The fixed words of every message that a module raises or logs."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        is_log = isinstance(node, ast.Call) and ast.unparse(node.func).startswith("log.")
        if not is_log and not isinstance(node, ast.Raise):
            continue
        for each in ast.walk(node):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                pieces = [piece.strip(" '\"") for piece in re.split(r"%[a-z]", each.value)]
                yield from (piece for piece in pieces if len(piece) >= MIN_FRAGMENT)


def test_every_message_about_the_mount_point_is_explained() -> None:
    """The words of each message of daemon/mountpoint.py are quoted in troubleshooting.md."""
    found = list(fragments(ROOT / "s3mount/daemon/mountpoint.py"))
    assert len(found) >= 8
    assert [words for words in found if words not in TROUBLESHOOTING] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(document: Path) -> None:
    """A link to a file of the repository, or to a heading in one, leads somewhere."""
    broken = []
    for target in LINK.findall(without_code(document.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (document.parent / name).resolve() if name else document
        if not linked.exists() or (anchor and anchor not in anchors_of(linked)):
            broken.append(target)
    assert broken == []


def test_decisions_are_numbered() -> None:
    """The decision records count from 0001 without a gap, and each has its three parts."""
    records = sorted((ROOT / "docs/decisions").glob("*.md"))
    assert [path.name[:4] for path in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    parts = ("**Context.**", "**Decision.**", "**Consequence.**")
    assert [path.name for path in records if not all(part in path.read_text(encoding="utf-8") for part in parts)] == []
