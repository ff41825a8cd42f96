"""click types: text becomes bytes, seconds or mode bits once, at the edge."""

import grp
from collections.abc import Callable
from typing import Any

import click

from s3mount.core.backoff import Patience
from s3mount.core.epochs import CachePolicy
from s3mount.core.ttl import parse_ttl
from s3mount.units import parse_duration, parse_size

_MAX_MODE = 0o777
#: The kernel's ids have 32 bits, and chown(2) takes the last one for "leave it".
MAX_ID = 2**32 - 2


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


def _parse_outage(text: str) -> float:
    """Seconds to wait for S3: "wait" for the default, "wait:30", "wait:5min"; 0 for "error"."""
    how, colon, time = text.partition(":")
    if text == "error":
        return 0.0
    seconds = parse_duration(time) if colon else Patience().window_s
    if how != "wait" or seconds <= 0:
        raise ValueError(f"{text!r} says nothing of an outage; write wait, wait:SECONDS (more than 0) or error")
    return seconds


def _parse_path_policy(text: str) -> CachePolicy:
    """Of the paths that are meant already."""
    prefix, policy = _parse_policy(text)
    if prefix:
        raise ValueError(f"{text!r} has a prefix, but the header says which paths are meant; write {policy.value}")
    return policy


def _parse_policy(text: str) -> tuple[str, CachePolicy]:
    """A prefix of keys, empty for all, and the policy."""
    prefix, equals, name = text.rpartition("=")
    names = [policy.value for policy in CachePolicy]
    if name not in names or (equals and not prefix):
        raise ValueError(f"{text!r} is not a policy; write {', '.join(names)}, or PREFIX= and one of them")
    return prefix, CachePolicy(name)


def _parse_access(text: str) -> bool:
    """Whether it is read-only."""
    if text not in ("read-only", "rw"):
        raise ValueError(f"{text!r} says nothing of who may write; write read-only or rw")
    return text == "read-only"


def _parse_group(text: str) -> int:
    """The number of a unix group; a number need not have a name here."""
    if text.isascii() and text.isdigit() and int(text) <= MAX_ID:
        return int(text)
    try:
        return grp.getgrnam(text).gr_gid
    except KeyError:
        raise ValueError(f"there is no group {text!r} on this host; getent group lists them") from None


DURATION = _Parsed("duration", parse_duration)
TTL = _Parsed("time", parse_ttl)
OUTAGE = _Parsed("outage", _parse_outage)
MODE = _Parsed("mode", _parse_mode)
POLICY = _Parsed("policy", _parse_policy)
ACCESS = _Parsed("access", _parse_access)
PATH_POLICY = _Parsed("policy", _parse_path_policy)
GROUP = _Parsed("group", _parse_group)
