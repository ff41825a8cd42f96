"""The curves as pictures: small files by processes, random reads by size, sequential reads by contender."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.reading.table import Row, Table

Value = Callable[[Row], float]


def draw(table: Table, directory: Path) -> None:
    """Write one SVG for each part of the run that has a curve."""
    directory.mkdir(parents=True, exist_ok=True)
    mpl.rcParams["svg.hashsalt"] = "s3mount"  # the same figures are the same file
    for name, make in (("small", _small), ("random", _random), ("sequential", _sequential)):
        figure = make(table)
        if figure is not None:
            figure.savefig(directory / f"{name}.svg", metadata={"Date": None})


def _small(table: Table) -> Figure | None:
    rows = [row for row in table.of_part("small") if row.at]
    if not rows:
        return None
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    speed, cost = figure.subplots(1, 2)
    bound = [row for row in rows if "bound_files_per_s" in row.figures]
    speed.plot(*_points(bound, "W", lambda row: row.of("bound_files_per_s")), "k--", label="W / (distance + transfer)")
    _curves(speed, rows, "W", lambda row: row.of("files_per_s"))
    _curves(cost, rows, "W", lambda row: row.of("cpu_us_per_file"))
    _label(speed, "115 kB files, 20 ms", "processes", "files/s")
    _label(cost, "CPU of the daemon, or of the reader", "processes", "µs per file")
    return figure


def _random(table: Table) -> Figure | None:
    rows = [row for row in table.of_part("random") if row.at]
    if not rows:
        return None
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    panels = figure.subplots(1, 2)
    for panel, in_flight in zip(panels, (1, 16), strict=True):
        mine = [row for row in rows if row.at["in_flight"] == in_flight]
        model = [row for row in mine if "model_ms" in row.figures]
        panel.plot(*_points(model, "KiB", lambda row: row.of("model_ms")), "k--", label="L + bytes / b")
        _curves(panel, mine, "KiB", lambda row: row.of("p50_ms"))
        _label(panel, f"random pread of 4 GiB, {in_flight} in flight, 20 ms", "KiB", "median ms")
    return figure


def _sequential(table: Table) -> Figure | None:
    parts = [part for part in ("plain", "tls", "far") if table.of_part(part)]
    if not parts:
        return None
    figure = Figure(figsize=(11, 3 * len(parts)), layout="constrained")
    for (speed, cost), part in zip(figure.subplots(len(parts), 2, squeeze=False), parts, strict=True):
        rows = table.of_part(part)
        names = [row.who for row in rows]
        speed.barh(names, [row.of("mb_per_s") for row in rows])
        cost.barh(names, [row.of("cpu_s_per_gb") for row in rows])
        speed.set(title=rows[0].what, xlabel="MB/s")
        cost.set(xlabel="CPU s/GB of the daemon, or of the reader")
        for panel in (speed, cost):
            panel.invert_yaxis()
    return figure


def _curves(panel: Any, rows: list[Row], x: str, value: Value) -> None:
    for who in dict.fromkeys(row.who for row in rows):
        panel.plot(*_points([row for row in rows if row.who == who], x, value), marker="o", label=who)


def _points(rows: Iterable[Row], x: str, value: Value) -> tuple[list[float], list[float]]:
    points = sorted({row.at[x]: value(row) for row in rows}.items())
    return [at for at, _ in points], [figure for _, figure in points]


def _label(panel: Any, title: str, x: str, y: str) -> None:
    """Both axes by factors, with plain numbers where the measurements are."""
    panel.set(title=title, xlabel=x, ylabel=y, yscale="log")
    panel.set_xscale("log", base=2)
    ticks = sorted({float(at) for line in panel.lines for at in line.get_xdata()})
    panel.set_xticks(ticks, [f"{at:g}" for at in ticks])
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter("{x:g}")
    panel.tick_params(axis="y", which="minor", labelsize=6)
    panel.grid(which="both", alpha=0.3)
    panel.legend(fontsize="small")
