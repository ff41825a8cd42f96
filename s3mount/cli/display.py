"""Events on the way to the user: a bar with rate and ETA on a terminal, plain lines else, or JSON.

Results go to stdout; progress, warnings and failures to stderr.  Keys are written by anybody who may write to the
bucket, so nothing that a terminal would obey is printed.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from s3mount.cli.tables import format_age, warm_line
from s3mount.errors import printable
from s3mount.units import counted, format_size

if TYPE_CHECKING:
    from rich.progress import Progress

Event = dict[str, Any]
#: Seconds between two lines of progress where there is no terminal: a log of a night stays readable.
_LINE_EVERY_S = 10.0


class Display(Protocol):
    """Where events are shown."""

    def progress(self, event: Event) -> None:
        """How far it is."""
        ...

    def line(self, lines: list[str], event: Event, *, is_error: bool = False) -> None:
        """What stays on the screen: some lines, whatever is in them."""
        ...


@contextmanager
def display_for(verb: str, *, as_json: bool) -> Iterator[Display]:
    """The display that suits where the output goes."""
    if as_json:
        yield JsonLines()
    elif not sys.stderr.isatty() or verb not in ("warm", "verify"):
        yield PlainLines(verb)
    else:
        with _bar(verb) as bar:
            yield bar


def _print(lines: list[str], *, is_error: bool) -> None:
    for line in lines:
        click.echo(printable(line), err=is_error)


class JsonLines:
    """Every event as it came; JSON escapes what a terminal would obey."""

    def progress(self, event: Event) -> None:
        """See `Display.progress`."""
        click.echo(json.dumps(event))

    def line(self, lines: list[str], event: Event, *, is_error: bool = False) -> None:
        """See `Display.line`."""
        click.echo(json.dumps(event))


class PlainLines:
    """Lines, and now and then one with the progress.

    Args:
        timer: seconds.
    """

    def __init__(self, verb: str, timer: Callable[[], float] = time.perf_counter) -> None:
        self._verb = verb
        self._timer = timer
        self._last_at = timer()

    def progress(self, event: Event) -> None:
        """See `Display.progress`."""
        if self._timer() - self._last_at >= _LINE_EVERY_S and (text := progress_text(self._verb, event)):
            self._last_at = self._timer()
            _print([text], is_error=True)

    def line(self, lines: list[str], event: Event, *, is_error: bool = False) -> None:
        """See `Display.line`."""
        _print(lines, is_error=is_error)


class _Bar:
    """A bar at the bottom of the terminal, the lines above it."""

    def __init__(self, verb: str, progress: "Progress") -> None:
        self._verb = verb
        self._progress = progress
        self._task = progress.add_task("", total=1.0)

    def progress(self, event: Event) -> None:
        if text := progress_text(self._verb, event):
            self._progress.update(self._task, completed=_fraction(self._verb, event), description=text)

    def line(self, lines: list[str], event: Event, *, is_error: bool = False) -> None:
        self._progress.stop()
        _print(lines, is_error=is_error)
        self._progress.start()


@contextmanager
def _bar(verb: str) -> Iterator[Display]:
    from rich.console import Console  # noqa: PLC0415  only a terminal pays for it
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn  # noqa: PLC0415

    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(verb, progress)


def _fraction(verb: str, event: Event) -> float:
    done, total = ("done_bytes", "n_bytes") if verb == "warm" else ("blocks", "all_blocks")
    return float(event[done] / event[total]) if event[total] else 0.0


def progress_text(verb: str, event: Event) -> str:
    """One line: how far, how fast, how long yet; empty when there is nothing to say."""
    if verb == "warm" and "files" in event:
        return warm_line(event) + _pace(event)
    if verb == "verify" and "blocks" in event:
        return f"{event['blocks']} of {counted(event['all_blocks'], 'block')}, {format_size(event['n_bytes'])}"
    return ""


def _pace(event: Event) -> str:
    fetched, elapsed_s = event["done_bytes"] - event["cached_bytes"], event["elapsed_s"]
    if fetched <= 0 or elapsed_s <= 0:
        return ""
    rate = fetched / elapsed_s
    eta = (event["n_bytes"] - event["done_bytes"]) / rate
    return f"; {format_size(int(rate))}/s" + (f", {format_age(eta)} to go" if event["is_listed"] else "")
