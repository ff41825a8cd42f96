"""Where in a TOML file each table and each key stands, which `tomllib` does not tell.

Good enough for messages: what has to be understood is the parser's to understand, and here a line is looked at by
itself.  In a value of several lines one can look like a header or a key; then the first line that does is told.
"""

import re
import tomllib

_HEADER = re.compile(r"\s*\[[^\[].*\]\s*(#.*)?")
_KEY = re.compile(r"""\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[\w-]+))\s*=""")

#: The names of nested tables, outermost first; empty outside of all.
Table = tuple[str, ...]


def lines_of(text: str) -> dict[tuple[Table, str], int]:
    """Where each header (with an empty key) and each key stands, counted from 1; `tomllib` does not tell."""
    lines: dict[tuple[Table, str], int] = {}
    table: Table = ()
    for number, line in enumerate(text.splitlines(), 1):
        if _HEADER.fullmatch(line):
            table = _names_in(line)
            lines.setdefault((table, ""), number)
        elif key := _KEY.match(line):
            lines.setdefault((table, key["double"] or key["single"] or key["bare"] or ""), number)
    return lines


def _names_in(header: str) -> Table:
    try:
        data = tomllib.loads(header)
    except tomllib.TOMLDecodeError:
        return ()  # a line of a longer value that looks like one
    names = []
    while data:
        name, data = next(iter(data.items()))
        names.append(name)
    return tuple(names)
