"""`s3mountctl stats`, `top` and `log-level`: what a mount does now, once or again and again.

A screen that is watched is drawn by rich, lines that go elsewhere are printed.  Whatever came from a key is escaped.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from s3mount.cli.arguments import JSON, MOUNT
from s3mount.cli.client import ask
from s3mount.cli.mounts import NotThere, locate, socket_path
from s3mount.cli.report import report_lines, table_lines, top_tables
from s3mount.errors import printable

Facts = dict[str, Any]
Show = Callable[[list[str]], None]

_EVERY = click.option("--interval", type=click.FloatRange(0.1), default=1.0, show_default=True, metavar="SECONDS",
                      help="With --watch: between two looks.")  # fmt: skip
_WATCH = click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")


@click.command(short_help="Show what readers wait for, rates, latencies, caches.")
@MOUNT
@_WATCH
@_EVERY
@JSON
def stats(mount: str, watch: bool, interval: float, as_json: bool) -> None:  # noqa: FBT001
    """Show what readers wait for, rates, latencies and caches: since the daemon's start, or with --watch now."""
    _look(mount, "stats", {}, report_lines, interval if watch else None, as_json=as_json)


@click.command(short_help="Show the files and programs that read most.")
@MOUNT
@click.option("-n", "--lines", type=click.IntRange(1, 1000), default=10, show_default=True, help="Of each kind.")
@_WATCH
@_EVERY
@JSON
def top(mount: str, lines: int, watch: bool, interval: float, as_json: bool) -> None:  # noqa: FBT001
    """Show the files, and the programs that opened them, with most bytes since the daemon's start."""
    _look(mount, "top", {"n": lines}, _top_lines, interval if watch else None, as_json=as_json)


@click.command(name="log-level", short_help="Show or set how much the daemon logs.")
@MOUNT
@click.argument("level", type=click.Choice(["debug", "info", "warning"]), required=False)
@JSON
def log_level(mount: str, level: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Show or set how much the daemon logs, until it ends; SIGUSR2 to the mounter goes to the next level."""
    facts = _ask(_socket_of(mount), "log-level", {"level": level})
    click.echo(json.dumps(facts) if as_json else facts["level"])


def _top_lines(now: Facts, before: Facts | None) -> list[str]:
    files, openers = map(table_lines, top_tables(now, before))
    return [*files, "", *openers]


def _look(
    mount: str,
    verb: str,
    args: Facts,
    lines: Callable[[Facts, Facts | None], list[str]],
    interval: float | None,
    *,
    as_json: bool,
) -> None:
    """Once, or until Ctrl-C; a daemon that is replaced meanwhile is waited for."""
    path = _socket_of(mount)
    if interval is None:
        facts = _ask(path, verb, args)
        _print([json.dumps(facts)] if as_json else lines(facts, None))
        return
    before: Facts | None = None
    with suppress(KeyboardInterrupt), _screen(is_drawn=sys.stdout.isatty() and not as_json) as show:
        while True:
            try:
                facts = _ask(path, verb, args)
            except NotThere as error:
                path = _socket_of(mount)  # else the mount is gone, and that is said
                show([error.message])
            else:
                show([json.dumps(facts)] if as_json else lines(facts, before))
                before = facts
            threading.Event().wait(interval)


def _socket_of(mount: str) -> Path:
    return socket_path(locate(mount)[0])


def _ask(path: Path, verb: str, args: Facts) -> Facts:
    """The facts of the result.

    Raises:
        NotThere: there is no answer, or it is an error.
    """
    answer = list(ask(path, verb, args))[-1]
    if answer["event"] == "error":
        raise NotThere(printable(answer["message"]))
    return answer


def _print(lines: list[str]) -> None:
    click.echo("\n".join(map(printable, lines)))


@contextmanager
def _screen(*, is_drawn: bool) -> Iterator[Show]:
    """Shows lines in the place of the last ones; or, where nobody looks, below them."""
    if not is_drawn:
        yield _print
        return
    from rich.live import Live  # noqa: PLC0415  only a terminal pays for it
    from rich.text import Text  # noqa: PLC0415

    with Live(auto_refresh=False, screen=True) as live:

        def show(lines: list[str]) -> None:
            live.update(Text("\n".join(map(printable, lines)), no_wrap=True, overflow="ellipsis"), refresh=True)

        yield show
