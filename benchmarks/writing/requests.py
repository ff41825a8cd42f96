"""What writers asked of a server: the lines of an nginx log."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.reading.traffic import add_up


@dataclass(frozen=True)
class Asked:
    """Attributes: whole objects, parts, copies of objects and of ranges, deletions; bytes of content either way."""

    puts: int
    parts: int
    copies: int
    part_copies: int
    deletes: int
    content_bytes: int


def count(lines: Iterable[str]) -> Asked:
    """The requests of log lines (`benchmarks.distance`)."""
    found = {"puts": 0, "parts": 0, "copies": 0, "part_copies": 0, "deletes": 0, "content_bytes": 0}
    rest = []
    for line in lines:
        method, _, _, uri, _, source, length, *_ = line.split(" ")
        if method == "PUT":
            kind = ("part_copies" if source != "-" else "parts") if "partNumber=" in uri else ""
            found[kind or ("copies" if source != "-" else "puts")] += 1
            found["content_bytes"] += int(length) if length.isdigit() else 0
        elif method == "DELETE" or (method == "POST" and "delete" in uri):
            found["deletes"] += 1
        else:
            rest.append(line)
    found["content_bytes"] += add_up(rest).n_bytes
    return Asked(**found)
