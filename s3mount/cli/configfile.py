"""A configuration file: TOML → what the flags of the same names would have said, and sections for some paths.

    bucket = "s3://my-bucket/train/"
    directory = "/srv/data"
    metadata-ttl = "indefinite"

    [path."ckpt/**"]
    metadata-ttl = "minimal"

A key is a flag's long name without its dashes, so which keys there are is not said again here: `click` has the flags.
A value becomes the text that the flag would get, and is checked by the flag's own type; where a shell would have given
several flags there is a list.  Every problem is found, not the first only, and told with its line.

A file says where the bucket is and how to mount it; it never has a secret.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import click

from s3mount.cli.toml_lines import Table, lines_of
from s3mount.cli.values import ACCESS, MODE, PATH_POLICY, TTL
from s3mount.core.policies import PathPolicy, Pattern
from s3mount.errors import BadOption

DIRECTORY = Path("/etc/s3mount")
SUFFIX = ".conf"
_SECTIONS = "path"
#: What a section may say of its paths: the field of `PathPolicy`, and the type of its text; None for true or false.
PATH_KEYS: dict[str, tuple[str, click.ParamType[Any] | None]] = {
    "metadata-ttl": ("ttl", TTL),
    "negative-metadata-ttl": ("negative_ttl", TTL),
    "cache-policy": ("cache", PATH_POLICY),
    "access": ("is_read_only", ACCESS),
    "whole-file": ("is_whole", None),
}
#: Flags that are about the command itself.
_NOT_IN_A_FILE = {"config", "check_config", "options", "version", "help"}
_SECRETS = re.compile(r"secret|token|passw|credential|access.?key")
_POSITION = re.compile(r" \(at line (\d+), column \d+\)$")


class Problem(NamedTuple):
    """Attributes: the line, if it is known; table and key, empty for the whole file; what is wrong."""

    line: int | None
    where: str
    message: str

    def told(self, path: Path) -> str:
        """One line, as compilers write them."""
        place = str(path) if self.line is None else f"{path}:{self.line}"
        return ": ".join(" ".join(each.split()) for each in (place, self.where, self.message) if each)


class ConfigFile(NamedTuple):
    """What a file says.

    Attributes:
        settings: values for click, by parameter.
        paths: patterns in the file's order, and what holds there.
        problems: in the file's order; what they are about is not in the rest.
    """

    path: Path
    settings: dict[str, Any]
    paths: tuple[tuple[str, PathPolicy], ...]
    problems: list[Problem]
    lines: dict[tuple[Table, str], int]


def locate(given: str) -> Path:
    """The file that a name, or a path with a slash in it, stands for."""
    return Path(given) if "/" in given else DIRECTORY / f"{given}{SUFFIX}"


def read(path: Path, parameters: Iterable[click.Parameter]) -> ConfigFile:
    """A file, with its problems.

    Raises:
        BadOption: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadOption(f"the configuration file {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadOption(f"the configuration file {str(path)!r} is not UTF-8 text") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        position = _POSITION.search(str(error))
        line = int(position[1]) if position else None
        return ConfigFile(path, {}, (), [Problem(line, "", f"not TOML: {_POSITION.sub('', str(error))}")], {})
    reader = _Reader(parameters, lines_of(text))
    settings, paths = reader.settings_of(data), reader.paths_of(data.get(_SECTIONS, {}))
    problems = sorted(reader.problems, key=lambda each: each.line or 0)
    return ConfigFile(path, settings, paths, problems, reader.lines)


def keys_of(parameters: Iterable[click.Parameter]) -> dict[str, click.Parameter]:
    """What a file may say outside of sections."""
    found = {}
    for each in parameters:
        if each.name is not None and each.name not in _NOT_IN_A_FILE:
            found[each.name if isinstance(each, click.Argument) else max(each.opts, key=len).lstrip("-")] = each
    return found


class _Reader:
    """Collects problems."""

    def __init__(self, parameters: Iterable[click.Parameter], lines: dict[tuple[Table, str], int]) -> None:
        self._keys = keys_of(parameters)
        self.lines = lines
        self.problems: list[Problem] = []

    def settings_of(self, data: Mapping[str, Any]) -> dict[str, Any]:
        settings = {}
        for key, value in data.items():
            parameter = self._keys.get(key)
            if key == _SECTIONS:
                continue
            if parameter is None or parameter.name is None:
                table, name = ((key,), "") if isinstance(value, dict) else ((), key)
                self._say(table, name, _unknown(key, [*self._keys, _SECTIONS]))
                continue
            try:
                settings[parameter.name] = _checked(parameter, value)
            except (ValueError, click.BadParameter) as error:
                self._say((), key, _words_of(error))
        return settings

    def paths_of(self, sections: object) -> tuple[tuple[str, PathPolicy], ...]:
        if not isinstance(sections, dict):
            self._say(
                (), _SECTIONS, f'what holds for a path stands under a header of its own: [{_SECTIONS}."datasets/**"]'
            )
            return ()
        found = []
        for pattern, said in sections.items():
            table = (_SECTIONS, pattern)
            try:
                Pattern(pattern)
            except ValueError as error:
                self._say(table, "", str(error))
                continue
            if isinstance(said, dict):
                settings = dict(self._path_settings(table, said))
                if "ttl" in settings:
                    settings.setdefault("negative_ttl", settings["ttl"])  # as of the mount
                found.append((pattern, PathPolicy(**settings)))
            else:
                self._say((_SECTIONS,), pattern, f'a path has a header of its own: [{_SECTIONS}."{pattern}"]')
        return tuple(found)

    def _path_settings(self, table: Table, said: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for key, value in said.items():
            if isinstance(value, dict):
                self._say((*table, key), "", f'quote the path: [{_SECTIONS}."{"/".join((*table[1:], key))}"]')
            elif key not in PATH_KEYS:
                self._say(table, key, _unknown(key, list(PATH_KEYS)))
            else:
                field, kind = PATH_KEYS[key]
                try:
                    yield field, _truth(value) if kind is None else kind.convert(_text(value), None, None)
                except (ValueError, click.BadParameter) as error:
                    self._say(table, key, _words_of(error))

    def _say(self, table: Table, key: str, message: str) -> None:
        header = "" if not table else f'[{table[0]}."{".".join(table[1:])}"]' if table[1:] else f"[{table[0]}]"
        inside = (line for (names, _), line in self.lines.items() if table and names[: len(table)] == table)
        line = self.lines.get((table, key)) or next(inside, None)
        self.problems.append(Problem(line, f"{header} {key}".strip(), message))


def _unknown(key: str, known: Sequence[str]) -> str:
    if _SECRETS.search(key.lower()):
        return (
            "credentials do not belong in this file, nor on a command line: they come from the environment, AWS's own "
            "files (profile says which part of them), or the role of the host"
        )
    close = get_close_matches(key.lower().replace("_", "-"), known, 1)
    return "there is no such setting" + (f"; did you mean {close[0]}?" if close else "")


def _words_of(error: Exception) -> str:
    return error.message if isinstance(error, click.BadParameter) else str(error)


def _checked(parameter: click.Parameter, value: object) -> Any:
    """What click gets; the flag's own type accepts it."""
    if getattr(parameter, "is_flag", False):
        return _truth(value)
    if parameter.multiple:
        return [_converted(parameter, each) for each in (value if isinstance(value, list) else [value])]
    return _converted(parameter, value)


def _converted(parameter: click.Parameter, value: object) -> str:
    if parameter.type is MODE and not isinstance(value, str):
        raise ValueError('write octal digits in quotes, as "0644"')
    text = _text(value)
    is_path = isinstance(parameter.type, click.Path) or parameter.name == "directory"
    if is_path and not text.startswith("/"):
        raise ValueError(f"{text!r} is relative, and a service starts anywhere; write it from / on")
    parameter.type.convert(text, parameter, None)
    return text


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("it takes a text in quotes or a number")  # noqa: TRY004  the user's mistake, not the caller's
    return str(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it is on or off: write true or false, without quotes")  # noqa: TRY004
    return value
