"""The options of -o and of fstab: what each becomes, what is passed over, what is refused."""

import re

import click
import pytest

from s3mount.cli.configfile import keys_of
from s3mount.cli.fstab import flags_of
from s3mount.cli.mount import main
from s3mount.errors import BadOption

OPTIONS = {key: each for key, each in keys_of(main.params).items() if isinstance(each, click.Option)}


@pytest.mark.parametrize("key", sorted(OPTIONS))
def test_every_flag_is_an_option(key: str) -> None:
    """In `-o` and in fstab every flag but `rw` has its own name, with dashes or underscores."""
    is_switch = getattr(OPTIONS[key], "is_flag", False)
    value, flag = ("", f"--{key}") if is_switch else ("=v", f"--{key}=v")
    name = "read-write" if key == "rw" else key
    assert flags_of([name + value, name.replace("-", "_") + value], main.params) == [flag, flag]


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("rw,nosuid,nodev,_netdev,nofail,noauto,user,defaults,noatime", []),
        ("x-systemd.automount,x-systemd.requires=a.service,X-mount.mkdir=0755,comment=a,user=me", []),
        ("ro", ["--read-only"]),
        ("read-write", ["--rw"]),
        ("config=train", ["--config=train"]),
        ("cache=/a,cache=/b", ["--cache=/a", "--cache=/b"]),
        ("", []),
        (",,ro,", ["--read-only"]),
        (r"cache=/with\,comma", ["--cache=/with,comma"]),
        (r"cache=/with\040space", ["--cache=/with space"]),
        (r"cache=/with\\040backslash", [r"--cache=/with\040backslash"]),
        ('cache="/in, quotes",ro', ["--cache=/in, quotes", "--read-only"]),
        ("cache-policy=train/=auto", ["--cache-policy=train/=auto"]),
        ("endpoint-url=http://h:1/?a=b", ["--endpoint-url=http://h:1/?a=b"]),
    ],
)
def test_what_options_become(text: str, flags: list[str]) -> None:
    """Generic options are passed over, values keep commas, spaces and equals signs that are escaped or inside."""
    assert flags_of([text], main.params) == flags


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cach=/a", "-o cach=/a: there is no such option; did you mean cache?"),
        ("nonsense", "-o nonsense: there is no such option"),
        ("cache", "-o cache needs a value: cache=VALUE"),
        ("allow_other=yes", "-o allow-other takes no value"),
        ("remount,ro", "umount, and mount again"),
        ("_netdev=x", "there is no such option"),
        ("version", "there is no such option"),
        ("secret-access-key=x", "there is no such option"),
    ],
)
def test_options_that_are_refused(text: str, says: str) -> None:
    """A name that nobody knows, a value too many or too few is an error that names it."""
    with pytest.raises(BadOption, match=re.escape(says)):
        flags_of([text], main.params)


def test_sloppy() -> None:
    """mount -s passes over names that are not known, and nothing else."""
    assert flags_of(["future=1,ro"], main.params, is_sloppy=True) == ["--read-only"]
    with pytest.raises(BadOption):
        flags_of(["cache"], main.params, is_sloppy=True)


def test_flags_and_options_are_one_command_line() -> None:
    """What -o says is as if its flags were written there."""
    arguments = ["-o", "uid=1,cache=/a", "--cache", "/b", "bucket", "/mnt", "-o", "gid=2"]
    with main.make_context("s3mount", arguments) as context:
        found = context.params
    assert (found["uid"], found["gid"], sorted(found["cache"])) == (1, 2, ["/a", "/b"])
    assert (found["bucket"], found["directory"]) == ("bucket", "/mnt")
