"""`--config` and `--check-config`: a file under the flags and the environment.

What is decided where several sources speak, for each flag:

    the command line, -o included  >  the environment  >  the file  >  the default

The environment is S3MOUNT_ and the flag's name, and for what AWS's own tools know, their variables (`_OF_AWS`).

A daemon that takes a mount over reads the file again: what it says now counts from then on.  But what is mounted stays
what it is: `arguments_for_successors` says that.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from s3mount.cli.configfile import DIRECTORY, SUFFIX, ConfigFile, Problem, locate, read
from s3mount.core.policies import PathPolicy
from s3mount.daemon.exits import ExitCode
from s3mount.errors import BadOption, S3MountError

#: Each flag's own variable is this and its name.
ENVIRONMENT_PREFIX = "S3MOUNT"
#: Variables of AWS's tools that say the same as a flag.
_OF_AWS = {
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint_url": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "ca_bundle": ("AWS_CA_BUNDLE",),
    "profile": ("AWS_PROFILE",),
}
#: What a mount keeps as long as it is mounted; the first two are arguments.
_FIXED = ("bucket", "directory", "prefix")
_EVERY_FILE = ""
_FLAG = re.compile(r"--([a-z][a-z-]*)")


def _load(ctx: click.Context, _: click.Parameter, given: str | None) -> ConfigFile | None:
    if given is None:
        return None
    found = read(locate(given), ctx.command.params)
    if found.problems:
        n_more = len(found.problems) - 1
        more = f" (and {n_more} more: s3mount --check-config {given})" if n_more else ""
        raise BadOption(f"{found.problems[0].told(found.path)}{more}")
    ctx.default_map = under_environment(found.settings, os.environ)
    return found


def under_environment(settings: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """What a file says and no variable of AWS's tools says otherwise; click looks at S3MOUNT_ variables itself."""
    return {
        name: value for name, value in settings.items() if not any(environ.get(each) for each in _OF_AWS.get(name, ()))
    }


def sections(flags: Mapping[str, Any]) -> tuple[tuple[str, PathPolicy], ...]:
    """What the file says of paths, in order.

    Raises:
        BadOption: it contradicts the flags.
    """
    paths: tuple[tuple[str, PathPolicy], ...] = () if flags["config"] is None else flags["config"].paths
    for pattern, said in paths:
        if flags["read_only"] and said.is_read_only is False:
            raise BadOption(f'--read-only excludes access = "rw" for the path {pattern!r}')
    return paths


CONFIG_FLAG = click.option(
    "--config", metavar="NAME", is_eager=True, callback=_load,
    help=f"Read a file: {DIRECTORY}/NAME{SUFFIX}, or a path with a slash in it.",
)  # fmt: skip


def check_flag(build: Callable[..., object]) -> Any:
    """--check-config.

    Args:
        build: takes bucket, directory, flags and environment; raises S3MountError where they contradict each other.
    """

    def check(ctx: click.Context, _: click.Parameter, given: str | None) -> None:
        if given is None:
            return
        paths = sorted(DIRECTORY.glob(f"*{SUFFIX}")) if given == _EVERY_FILE else [locate(given)]
        if not paths:
            raise BadOption(f"there is no file {DIRECTORY}/NAME{SUFFIX} to check; give a name or a path")
        ctx.exit(max(_check(ctx.command, path, build) for path in paths))

    return click.option(
        "--check-config", metavar="[NAME]", is_flag=False, flag_value=_EVERY_FILE, is_eager=True, expose_value=False,
        callback=check, allow_from_autoenv=False,
        help=f"Say what is wrong with such a file, or with all in {DIRECTORY}, and mount nothing.",
    )  # fmt: skip


def _check(command: click.Command, path: Path, build: Callable[..., object]) -> int:
    """Tell what is wrong with one file, or what it mounts; the exit code."""
    try:
        found = read(path, command.params)
        problems = found.problems or _contradictions(command, found, build)
    except BadOption as error:
        click.echo(f"s3mount: {error}", err=True)
        return ExitCode.USAGE
    for problem in problems:
        click.echo(problem.told(path), err=True)
    if problems:
        return ExitCode.USAGE
    missing = [name for name in ("bucket", "directory") if name not in found.settings]
    mounts = f"mounts {found.settings.get('bucket')} on {found.settings.get('directory')}"
    click.echo(f"{path}: OK, " + (f"if the command says {' and '.join(missing)}" if missing else mounts))
    return ExitCode.OK


def _contradictions(command: click.Command, found: ConfigFile, build: Callable[..., object]) -> list[Problem]:
    """What is wrong with settings that are right by themselves, without the environment."""
    settings = {"bucket": "bucket", "directory": "/mnt"} | found.settings
    with command.make_context("s3mount", [], default_map=settings, auto_envvar_prefix=None) as context:
        flags = dict(context.params)
    try:
        build(flags.pop("bucket"), flags.pop("directory"), flags | {"config": found}, {})
    except S3MountError as error:
        lines = [found.lines[(), key] for key in _FLAG.findall(str(error)) if ((), key) in found.lines]
        return [Problem(min(lines, default=None), "", str(error))]
    return []


def arguments_for_successors(ctx: click.Context, arguments: Sequence[str]) -> list[str]:
    """What a later daemon of the mount is started with.

    Args:
        arguments: of this command.

    Returns:
        The same, and what only the file said of the things that cannot change under a mount.
    """
    from_file = {name for name in _FIXED if ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP}
    prefix = [f"--prefix={ctx.params['prefix']}"] if "prefix" in from_file else []
    return [*prefix, *arguments, *(ctx.params[name] for name in _FIXED[:2] if name in from_file)]
