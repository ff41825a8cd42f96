"""Man pages and shell completion, from the same click commands that print --help: `python .ci/manual.py DIRECTORY`.

What is in share/ is what this writes, and a check compares them.  A parser of argparse's with the same options stands
in for each command, because shtab, which knows the shells, knows only those.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import shtab

from s3mount import __version__
from s3mount.cli.ctl import main as ctl
from s3mount.cli.mount import main as mount

COMMANDS = {"s3mount": mount, "s3mountctl": ctl}
#: Where each shell looks, below PREFIX.
PLACES = {
    "bash": "share/bash-completion/completions/{}",
    "zsh": "share/zsh/site-functions/_{}",
    "fish": "share/fish/vendor_completions.d/{}.fish",
}
_WIDTH = 100


def files() -> Iterator[tuple[str, str]]:
    """Name below PREFIX and text of each file."""
    for name, command in COMMANDS.items():
        yield f"share/man/man1/{name}.1", manual(name, command)
        for shell, place in PLACES.items():
            yield place.format(name), shtab.complete(parser(name, command), shell).rstrip() + "\n"


def manual(name: str, command: click.Command) -> str:
    """The man page (man(7)) of a command, and of all its commands."""
    other = next(each for each in COMMANDS if each != name)
    context = _context(command, name)
    lines = [
        f'.TH {name.upper()} 1 "" "s3mount {__version__}"',
        *(".SH NAME", f"{name} \\- {_text(_first_line(command)).rstrip('.')}"),
        *(".SH SYNOPSIS", f".B {name}", _text(" ".join(command.collect_usage_pieces(context)))),
        *(".SH DESCRIPTION", *_paragraphs(command.help or "")),
        *(".SH OPTIONS", *_options(command, context)),
    ]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for verb in command.list_commands(context):
            found = command.get_command(context, verb)
            if found is not None:
                below = _context(found, verb, context)
                lines += [f".SS {verb} {_text(' '.join(found.collect_usage_pieces(below)))}"]
                lines += [*_paragraphs(found.help or ""), *_options(found, below)]
    return "\n".join([*lines, ".SH SEE ALSO", f".BR {other} (1)"]) + "\n"


def _context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    return click.Context(command, info_name=name, parent=parent, **command.context_settings)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for option in command.get_params(context):
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            yield from (".TP", f".B {_text(record[0])}", _text(" ".join(record[1].split())))


def _first_line(command: click.Command) -> str:
    return command.get_short_help_str(_WIDTH)


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield from (".PP", _text(" ".join(paragraph.split())))


def _text(text: str) -> str:
    """Text that man(7) shows as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def parser(name: str, command: click.Command) -> argparse.ArgumentParser:
    """The same options and commands for shtab; it parses nothing."""
    made = argparse.ArgumentParser(prog=name, add_help=False, description=_first_line(command))
    context = _context(command, name)
    for param in command.get_params(context):
        _add(made, param)
    if isinstance(command, click.Group):
        verbs = made.add_subparsers(dest="verb")
        for verb in command.list_commands(context):
            found = command.get_command(context, verb)
            if found is not None:
                below = verbs.add_parser(verb, help=_help(_first_line(found)), add_help=False)
                for param in found.get_params(_context(found, verb, context)):
                    _add(below, param)
    return made


def _add(made: argparse.ArgumentParser, param: click.Parameter) -> None:
    choices = list(param.type.choices) if isinstance(param.type, click.Choice) else None
    is_flag = isinstance(param, click.Option) and (param.is_flag or param.count)
    if isinstance(param, click.Option):
        names, told = [*param.opts, *param.secondary_opts], _help(param.help or "")
        action = (
            made.add_argument(*names, help=told, action="store_true", dest=param.name)
            if is_flag
            else made.add_argument(*names, help=told, choices=choices, dest=param.name)
        )
    else:
        action = made.add_argument(param.name or "", nargs="?" if param.nargs == 1 else "*", choices=choices)
    if not is_flag and choices is None:
        action.complete = _completion(param)  # type: ignore[attr-defined]


def _completion(param: click.Parameter) -> dict[str, Any]:
    """Directories where one is meant, files where one may be."""
    is_directory = param.name in ("directory", "mount", "cache", "log_directory")
    return shtab.DIRECTORY if is_directory else shtab.FILE


def _help(text: str) -> str:
    return " ".join(text.split()).replace("%", "%%")


def write(directory: Path) -> None:
    """Every file, below a directory."""
    for name, text in files():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
