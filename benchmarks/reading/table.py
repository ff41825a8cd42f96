"""Figures, ratios and aims: what a run found, as a table and as JSON.

A row is one contender doing one thing; a figure has one value for each repeat, and the table shows medians.
"""

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

Figures = dict[str, float]
#: From here on the machine had nothing left to give.
_CPU_FULL = 0.93


@dataclass(frozen=True)
class Aim:
    """Attributes: the figure; its bound; whether it is the least or the most; the words of the table.

    `until_cpu_full`: a miss on a machine without idle time is said to be one.
    """

    figure: str
    bound: float
    is_least: bool
    until_cpu_full: bool


@dataclass
class Row:
    """One contender doing one thing; `at` is what changes along a curve: processes, KiB."""

    part: str
    what: str
    who: str
    at: dict[str, float] = field(default_factory=dict)
    figures: dict[str, list[float]] = field(default_factory=dict)
    aims: list[Aim] = field(default_factory=list)

    def note(self, **figures: float | None) -> None:
        """One repeat's values; what could not be measured is left out."""
        for name, value in figures.items():
            if value is not None:
                self.figures.setdefault(name, []).append(value)

    def of(self, figure: str) -> float:
        """The median of a figure; not a number where there is none."""
        values = self.figures.get(figure)
        return statistics.median(values) if values else float("nan")

    def ratio(self, name: str, figure: str, other: "Row") -> None:
        """This row's values of a figure over another's, repeat by repeat."""
        pairs = zip(self.figures.get(figure, []), other.figures.get(figure, []), strict=False)
        self.figures[name] = [mine / its for mine, its in pairs if its]

    def at_least(self, figure: str, bound: float, *, until_cpu_full: bool = False) -> None:
        """The figure should not be less."""
        self.aims.append(Aim(figure, bound, is_least=True, until_cpu_full=until_cpu_full))

    def at_most(self, figure: str, bound: float, *, until_cpu_full: bool = False) -> None:
        """The figure should not be more."""
        self.aims.append(Aim(figure, bound, is_least=False, until_cpu_full=until_cpu_full))

    def verdict(self, aim: Aim) -> str:
        """Whether it is met: "met", "MISSED", "missed, CPU full" or "not measured"."""
        value = self.of(aim.figure)
        if value != value:  # noqa: PLR0124  not a number
            return "not measured"
        if value >= aim.bound if aim.is_least else value <= aim.bound:
            return "met"
        is_full = aim.until_cpu_full and self.of("machine_busy") >= _CPU_FULL
        return "missed, CPU full" if is_full else "MISSED"


class Table:
    """All rows, in the order they were made."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._printed = 0

    def row(self, part: str, what: str, who: str, **at: float) -> Row:
        """The row of a contender; made when it is new, and then `at` is kept."""
        for row in self.rows:
            if (row.part, row.what, row.who) == (part, what, who):
                return row
        self.rows.append(Row(part, what, who, at))
        return self.rows[-1]

    def of_part(self, part: str) -> list[Row]:
        """The rows of one part of the run."""
        return [row for row in self.rows if row.part == part]

    def print_new(self) -> None:
        """The rows that were not printed yet, each with its aims."""
        what = None
        for row in self.rows[self._printed :]:
            if row.what != what:
                what = row.what
                print(f"\n{row.part}: {what}", flush=True)
            print(f"  {row.who:22}", ", ".join(f"{name} {row.of(name):.4g}" for name in row.figures))
            for aim in row.aims:
                bound = f"{'>=' if aim.is_least else '<='} {aim.bound:.4g}"
                print(f"  {'':22}   aim: {aim.figure} {bound}: {row.of(aim.figure):.4g}, {row.verdict(aim)}")
        self._printed = len(self.rows)

    def print_summary(self) -> None:
        """Every aim in one line each: the issue's table."""
        print("\naims")
        for row in self.rows:
            for aim in row.aims:
                bound = f"{aim.figure} {'>=' if aim.is_least else '<='} {aim.bound:.4g}"
                print(
                    f"  {row.verdict(aim):17} {row.of(aim.figure):10.4g}  {bound:34} {row.part}: {row.what}, {row.who}"
                )

    def as_json(self) -> list[dict[str, Any]]:
        """Rows with every value, medians and verdicts."""
        return [
            {
                "part": row.part, "what": row.what, "who": row.who, "at": row.at, "figures": row.figures,
                "medians": {name: row.of(name) for name, values in row.figures.items() if values},
                "aims": [asdict(aim) | {"verdict": row.verdict(aim)} for aim in row.aims],
            }
            for row in self.rows
        ]  # fmt: skip
