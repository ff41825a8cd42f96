"""docs/metrics.md as tests read it."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")

#: Objects whose names are no part of the schema, and what the document calls them.
_NAMED = {"calls": "OPERATION", "requests.latencies": "OPERATION"}
#: Places that the document describes as a whole.
_WHOLE = re.compile(r"parts|uploads|calls\.OPERATION\.errors|event|failed")


def paths_of(facts: Any, path: str = "") -> set[str]:
    """Every place in an answer: names with dots, `[]` for the elements of a list."""
    if _WHOLE.fullmatch(path):
        return {path}
    if isinstance(facts, dict):
        names = {_NAMED.get(path, name): value for name, value in facts.items()}
        return set().union(*(paths_of(value, f"{path}.{name}".lstrip(".")) for name, value in names.items()))
    if isinstance(facts, list) and facts and isinstance(facts[0], dict):
        return set().union(*(paths_of(each, f"{path}[]") for each in facts))
    return {path}


def _first_cells(section: str) -> list[str]:
    _, _, text = TEXT.partition(f"\n## {section}\n")
    text = text.partition("\n## ")[0]
    return [
        cell
        for line in text.splitlines()
        if line.startswith("| `")
        for cell in re.findall(r"`([^`]+)`", line.split("|")[1])
    ]


def documented_paths() -> set[str]:
    """Every place in the answer of `stats --json` that is documented, but those of lists that may be empty."""
    return set(_first_cells("The JSON of stats"))


def documented_metrics() -> dict[str, tuple[str, str]]:
    """Type and labels of each metric, by name."""
    rows = [line.strip("|").split("|") for line in TEXT.splitlines() if line.startswith("| `s3mount_")]
    return {row[0].strip(" `"): (row[1].strip(), row[2].strip()) for row in rows}
