"""Mount options as fstab(5) and mount(8) write them: `-o cache=/nvme,metadata-ttl=indefinite,_netdev` → flags.

A name is a flag's long name without its dashes; an underscore is as good as a dash, since FUSE spells its own options
so.  What other programs read in the same place (`_netdev`, `x-systemd.automount`) is passed over, and so is what this
mount is in any case (`nosuid`, `noatime`).  `rw` among them: mount(8) says it of every mount that is not `ro`, and the
flag of that name means more, so here it is called `read-write`.  Any other name is an error, so that none is lost by a
slip.

Commas in a value: with a backslash before them, or the value in double quotes.  A backslash makes any character
ordinary; with three octal digits it is the character of that number, as in fstab (`\\040` is a space).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

import click

from s3mount.cli.configfile import keys_of
from s3mount.errors import BadOption

#: mount(8), "FILESYSTEM-INDEPENDENT MOUNT OPTIONS": what it and systemd heed, and what holds for each s3mount.
_PASSED_OVER = frozenset({
    "defaults", "auto", "noauto", "nofail", "user", "users", "nouser", "nousers", "owner", "group", "_netdev", "netdev",
    "rw", "async", "suid", "nosuid", "dev", "nodev", "exec", "atime", "noatime", "diratime", "nodiratime", "relatime",
    "norelatime", "strictatime", "nostrictatime", "lazytime", "nolazytime", "nomand", "silent", "loud",
})  # fmt: skip
_PRIVATE = re.compile(r"(x-|X-|comment=|uhelper=|user=|helper=).*", re.DOTALL)
_OTHER_NAMES = {"ro": "read-only", "read-write": "rw", "read_write": "rw"}
#: One option: pieces in quotes, escaped characters, others.
_OPTION = re.compile(r'(?:"[^"]*"|\\.|[^,\\"])+', re.DOTALL)
_PIECE = re.compile(r'"(?P<quoted>[^"]*)"|\\(?P<octal>[0-3][0-7]{2})|\\(?P<escaped>.)|(?P<plain>[^\\"]+)', re.DOTALL)


def flags_of(given: Iterable[str], parameters: Sequence[click.Parameter], *, is_sloppy: bool = False) -> list[str]:
    """Flags that mean the same.

    Args:
        given: comma-separated options, as often as -o was given.
        parameters: of the command.
        is_sloppy: unknown names are passed over (mount -s).

    Raises:
        BadOption: an unknown name, or a value where there is none or the other way.
    """
    known = keys_of(each for each in parameters if isinstance(each, click.Option))
    known |= {each.name: each for each in parameters if each.name == "config"}
    flags = []
    for option in (_unquoted(found[0]) for text in given for found in _OPTION.finditer(text)):
        name, equals, value = option.partition("=")
        name = _OTHER_NAMES.get(name, name.replace("_", "-"))
        if option in _PASSED_OVER or _PRIVATE.fullmatch(option):
            continue
        if name in known:
            flags.append(_flag(name, value if equals else None, known))
        elif not is_sloppy:
            raise _unknown(option, get_close_matches(name, known, 1))
    return flags


def _unknown(option: str, close: Sequence[str]) -> BadOption:
    if option == "remount":
        return BadOption("-o remount: what is mounted cannot be changed; umount, and mount again")
    return BadOption(f"-o {option}: there is no such option" + (f"; did you mean {close[0]}?" if close else ""))


def _flag(name: str, value: str | None, known: Mapping[str, click.Parameter]) -> str:
    is_switch = getattr(known[name], "is_flag", False)
    if is_switch != (value is None):
        raise BadOption(f"-o {name} takes no value" if is_switch else f"-o {name} needs a value: {name}=VALUE")
    return f"--{name}" if is_switch else f"--{name}={value}"


def _unquoted(option: str) -> str:
    return "".join(
        chr(int(piece["octal"], 8)) if piece["octal"] else piece["quoted"] or piece["escaped"] or piece["plain"] or ""
        for piece in _PIECE.finditer(option)
    )
