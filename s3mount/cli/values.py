"""click types: text becomes bytes, seconds or mode bits once, at the edge."""

from collections.abc import Callable
from typing import Any

import click

from s3mount.core.ttl import parse_ttl
from s3mount.units import parse_duration, parse_size

_MAX_MODE = 0o777


class _Parsed(click.ParamType[Any]):
    """A value by a function that raises ValueError with the message for the user."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def size_in(unit: int) -> click.ParamType[Any]:
    """Bytes; a bare number counts in `unit` bytes."""
    return _Parsed("size", lambda text: parse_size(text, unit=unit))


def _parse_mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= _MAX_MODE:
        raise ValueError(f"{text!r} is not a mode; write octal digits from 0 to 0777")
    return mode


DURATION = _Parsed("duration", parse_duration)
TTL = _Parsed("time", parse_ttl)
MODE = _Parsed("mode", _parse_mode)
