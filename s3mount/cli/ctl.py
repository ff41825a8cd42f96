"""`s3mountctl`: what can be asked of mounts that run.

Arguments → one request to the daemon (cli.client), its events → the terminal (cli.display).  Nothing is done
here that the daemon does.  Starting it takes no library of the daemon's.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from s3mount import __version__
from s3mount.cli import live
from s3mount.cli.arguments import JSON, MOUNT, PATHS
from s3mount.cli.client import ask
from s3mount.cli.display import Display, display_for
from s3mount.cli.lazy import Commands
from s3mount.cli.mounts import NOT_THERE, NotThere, locate, ours, socket_path
from s3mount.cli.tables import cache_lines, result_line, upload_line
from s3mount.daemon import rundir
from s3mount.errors import printable
from s3mount.fuse.mountinfo import Mounted

OK, FAILED, USAGE = 0, 1, 2
#: Error codes of the daemon (daemon.control) and what the command's status is; any other is a failure.
_STATUS = {"usage": USAGE, "not-permitted": NOT_THERE}
#: Of paths in one request: half of what a daemon takes, since JSON escapes make it longer.
_REQUEST_BYTES = 1_000_000
#: Seconds for a daemon in a list of many.
_LIST_S = 2.0


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="s3mountctl")
def main() -> None:
    """Ask a mount that runs.  MOUNT is its directory, or any path in it; PATHs are relative to it, or absolute."""


for _command in (live.stats, live.top, live.log_level):
    main.add_command(_command)


@main.command(short_help="Bring content into the disk cache.")
@MOUNT
@PATHS
@click.option("--from", "listed", type=click.File("rb"), metavar="FILE", help="Paths, one a line; - for stdin.")
@JSON
def warm(mount: str, paths: tuple[str, ...], listed: Any, as_json: bool) -> None:  # noqa: FBT001
    """Bring content into the disk cache: all below MOUNT, or below each PATH.

    What is there already is not fetched again, so a command that was interrupted goes on where it was.
    """
    if listed is not None:
        lines = [os.fsdecode(line.rstrip(b"\r\n")) for line in listed]
        paths += tuple(line for line in lines if line)
        if not paths:
            raise click.UsageError("--from gives no path")
    _run("warm", mount, paths, as_json=as_json)


@main.command(short_help="Remove content from the disk cache.")
@MOUNT
@PATHS
@click.option("--all", "is_all", is_flag=True, help="Empty the cache directories, whatever mount filled them.")
@JSON
def evict(mount: str, paths: tuple[str, ...], is_all: bool, as_json: bool) -> None:  # noqa: FBT001
    """Remove content from the disk cache: of all objects below MOUNT, or below each PATH."""
    if is_all and paths:
        raise click.UsageError("--all excludes paths")
    _run("evict", mount, paths, as_json=as_json, is_all=is_all)


@main.command(short_help="Show the disk cache, or verify every block of it.")
@MOUNT
@click.argument("action", type=click.Choice(["verify"]), required=False)
@JSON
def cache(mount: str, action: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Show the disk cache; or verify: check every block on disk, and remove those that are wrong."""
    _run(action or "cache", mount, (), as_json=as_json)


@main.command(short_help="Forget names and attributes: the next use asks S3.")
@MOUNT
@PATHS
@JSON
def refresh(mount: str, paths: tuple[str, ...], as_json: bool) -> None:  # noqa: FBT001
    """Forget names and attributes of all below MOUNT, or below each PATH: the next use asks S3."""
    _run("refresh", mount, paths, as_json=as_json)


@main.command(short_help="Have a new daemon take the mount over; programs go on.")
@MOUNT
@JSON
def restart(mount: str, as_json: bool) -> None:  # noqa: FBT001
    """Have a new daemon, of the code that is installed now, take over the whole mount; programs go on."""
    _run("restart", mount, (), is_whole=True, as_json=as_json)


@main.command(short_help="Show uploads that a crash left, or abort them.")
@click.argument("mount", metavar="[MOUNT]", required=False, type=str)
@click.option("--abort", "is_aborting", is_flag=True, help="Abort them.")
@JSON
def uploads(mount: str | None, is_aborting: bool, as_json: bool) -> None:  # noqa: FBT001
    """Show the multipart uploads that daemons of this host left when they died, with age and id; or abort them.

    MOUNT may be left out where there is one.  Uploads of other hosts and of daemons that live are never touched.
    """
    there = [each.target for each in ours()]
    if mount is None and len(there) != 1:
        raise click.UsageError(f"there are {len(there)} mounts; say which MOUNT")
    _run("uploads", mount or there[0], (), is_whole=True, as_json=as_json, is_aborting=is_aborting)


@main.command(name="list", short_help="Show the mounts of this host and their daemons.")
@JSON
def list_mounts(as_json: bool) -> None:  # noqa: FBT001
    """Show the mounts of this host, and whether their daemons answer."""
    states = [_state_of(mount) for mount in ours()]
    seen = {facts.get("pid") for facts in states}
    for path in rundir.sockets(os.geteuid(), os.environ):  # a mount that was detached while files are open
        with suppress(NotThere):
            facts = _ask_status(path)
            if facts["pid"] not in seen:
                states.append(facts | {"source": "not mounted any more, still in use"})
    for facts in states:
        words = (facts["mount_point"], facts["source"], facts.get("error") or f"pid {facts['pid']}")
        click.echo(json.dumps(facts) if as_json else printable("  ".join(words)))
    sys.exit(FAILED if any("error" in facts for facts in states) else OK)


def _state_of(mount: Mounted) -> dict[str, Any]:
    facts = {"mount_point": mount.target, "source": mount.source, "uid": mount.uid}
    try:
        return facts | _ask_status(socket_path(mount))
    except NotThere as error:
        return facts | {"error": error.message}


def _ask_status(path: Path) -> dict[str, Any]:
    answer = list(ask(path, "status", {}, silence_s=_LIST_S))[-1]
    if answer.pop("event") == "error":
        raise NotThere(answer["message"])
    return answer


def _run(verb: str, mount: str, paths: tuple[str, ...], *, as_json: bool, is_whole: bool = False, **args: Any) -> None:
    """One verb, to its end."""
    found, inside = locate(mount)
    wanted = [_within(found, inside, path) for path in paths] or ([inside] if inside and not is_whole else [])
    path = socket_path(found)
    status = OK
    with display_for(verb, as_json=as_json) as display:
        for some in _batches(wanted):
            for event in ask(path, verb, {"paths": some, **args}):
                status = max(status, _show(verb, event, display))
            if status in _STATUS.values():
                break
    sys.exit(status)


def _within(found: Mounted, inside: str, path: str) -> str:
    """A PATH as the daemon knows it.

    Raises:
        UsageError: it leads out of the mount.
    """
    full = os.path.normpath(os.path.join(found.target, inside, path))
    if full != found.target and not full.startswith(found.target.rstrip("/") + "/"):
        raise click.UsageError(f"{printable(path)} is not in the mount {printable(found.target)}")
    return full[len(found.target) :].strip("/")


def _batches(paths: list[str]) -> Iterator[list[str]]:
    """The paths in requests that a daemon takes; one request, also without paths."""
    some: list[str] = []
    size = 0
    for path in paths:
        if some and size + len(path) > _REQUEST_BYTES:
            yield some
            some, size = [], 0
        some.append(path)
        size += len(path) + 4
    yield some


def _show(verb: str, event: dict[str, Any], display: Display) -> int:
    """An event on its way to the user; returns what it means for the status."""
    kind = event["event"]
    if kind == "progress":
        display.progress(event)
    elif kind == "failed":
        display.line([f"{event['path'] or '.'}: {event['reason']}"], event, is_error=True)
    elif kind == "upload":
        display.line([upload_line(event)], event)
    elif kind == "warning":
        display.line([f"warning: {event['message']}"], event, is_error=True)
    elif kind == "error":
        display.line([f"s3mountctl: {event['message']}"], event, is_error=True)
        return _STATUS.get(event["code"], FAILED)
    else:
        display.line(cache_lines(event) if verb == "cache" else [result_line(verb, event)], event)
        return FAILED if event.get("failed") or event.get("left_out") else OK
    return OK
