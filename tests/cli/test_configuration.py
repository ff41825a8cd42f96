"""Which source of a setting counts: command line, environment, file, default; for every flag there is."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from s3mount.cli.configfile import keys_of
from s3mount.cli.configuration import arguments_for_successors, under_environment
from s3mount.cli.mount import build_config, main
from s3mount.cli.values import DURATION, GROUP, MODE, OUTAGE, POLICY, TTL
from s3mount.core.policies import PathPolicy
from s3mount.core.ttl import MINIMAL
from tests.support.mounts import COMMAND, aws_environment
from tests.support.namespaces import in_namespace

KEYS = keys_of(main.params)
FLAGS = {key: each for key, each in KEYS.items() if isinstance(each, click.Option)}
#: Three values that each type takes; a flag of another type needs three here.
SAMPLES: dict[str, tuple[str, str, str]] = {
    **{each.name: ("60", "120", "240") for each in (TTL, DURATION)},
    MODE.name: ("0700", "0500", "0400"),
    OUTAGE.name: ("wait:1", "wait:2", "error"),
    POLICY.name: ("off", "pin", "lru"),
    GROUP.name: ("1", "2", "3"),
    "size": ("8MiB", "16MiB", "32MiB"),
    "text": ("a/", "b/", "c/"),
    "float": ("1", "2", "3"),
    "integer range": ("100", "200", "300"),
    "path": ("/a", "/b", "/c"),
    "directory": ("/a", "/b", "/c"),
    "file": ("/etc/hostname", "/etc/hosts", "/etc/passwd"),
}


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in FLAGS:
        monkeypatch.delenv(variable_of(key), raising=False)


def variable_of(key: str) -> str:
    return "S3MOUNT_" + key.replace("-", "_").upper()


def parameters(work: Path, text: str, *arguments: str) -> dict[str, Any]:
    path = work / "x.conf"
    path.write_text(text, encoding="utf-8")
    with main.make_context("s3mount", ["--config", str(path), *arguments, "bucket", "/mnt"]) as context:
        return dict(context.params)


def samples_of(key: str) -> tuple[str, str, str]:
    """Three values; of a choice that no default is."""
    kind = FLAGS[key].type
    if isinstance(kind, click.Choice):
        first, second, *_ = (each for each in reversed(kind.choices) if each != FLAGS[key].default)
        return first, second, first
    return SAMPLES[kind.name]


def value_of(key: str, text: str) -> Any:
    each = FLAGS[key]
    value = each.type.convert(text, each, None)
    return (value,) if each.multiple else value


@pytest.mark.parametrize("key", sorted(key for key, each in FLAGS.items() if not each.is_flag))
def test_values_by_source(work: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """Of every flag with a value the command line's counts before the environment's S3MOUNT_ variable, that before
    the file's, and that before the default.
    """
    name = FLAGS[key].name or ""
    in_file, in_environment, on_command_line = samples_of(key)
    text = f"{key} = {json.dumps(in_file)}"
    assert parameters(work, "")[name] not in [value_of(key, each) for each in (in_environment, on_command_line)]
    assert parameters(work, text)[name] == value_of(key, in_file)
    monkeypatch.setenv(variable_of(key), in_environment)
    assert parameters(work, text)[name] == value_of(key, in_environment)
    assert parameters(work, text, f"--{key}", on_command_line)[name] == value_of(key, on_command_line)


@pytest.mark.parametrize("key", sorted(key for key, each in FLAGS.items() if each.is_flag))
def test_switches_by_source(work: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """A switch that the file turns on the environment can turn off; one that both leave off a flag turns on."""
    name = FLAGS[key].name or ""
    assert parameters(work, "")[name] is False
    assert parameters(work, f"{key} = true")[name] is True
    monkeypatch.setenv(variable_of(key), "false")
    assert parameters(work, f"{key} = true")[name] is False
    assert parameters(work, f"{key} = false", f"--{key}")[name] is True
    monkeypatch.setenv(variable_of(key), "true")
    assert parameters(work, f"{key} = false")[name] is True


@pytest.mark.parametrize(
    ("key", "variable", "value"),
    [
        ("region", "AWS_REGION", "r"),
        ("region", "AWS_DEFAULT_REGION", "r"),
        ("endpoint-url", "AWS_ENDPOINT_URL_S3", "http://h"),
        ("endpoint-url", "AWS_ENDPOINT_URL", "http://h"),
        ("ca-bundle", "AWS_CA_BUNDLE", "/etc/hosts"),
        ("profile", "AWS_PROFILE", "p"),
    ],
)
def test_variables_of_other_tools(
    work: Path, monkeypatch: pytest.MonkeyPatch, key: str, variable: str, value: str
) -> None:
    """A variable of AWS's tools counts before the file too, and an empty one says nothing."""
    name = FLAGS[key].name or ""
    settings = {name: "from the file", "uid": "1"}
    assert under_environment(settings, {variable: value}) == {"uid": "1"}
    assert under_environment(settings, {variable: ""}) == settings
    monkeypatch.setenv(variable, value)
    assert parameters(work, f"{key} = {json.dumps(samples_of(key)[0])}")[name] is None


def test_a_file_says_everything(work: Path) -> None:
    """With bucket and directory in the file the name of the file is all that the command needs."""
    path = work / "x.conf"
    path.write_text('bucket = "my-bucket"\ndirectory = "/mnt/x"\n[path."c/**"]\nmetadata-ttl = 0\n', encoding="utf-8")
    with main.make_context("s3mount", ["--config", str(path)]) as context:
        flags = dict(context.params)
    config = build_config(flags.pop("bucket"), flags.pop("directory"), flags, {})
    assert (config.s3.location.bucket, config.fuse.mount_point) == ("my-bucket", "/mnt/x")
    assert config.paths == (("c/**", PathPolicy(MINIMAL, MINIMAL)),)


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ('bucket = "b"\ndirectory = "/m"\nprefix = "p/"', [], ["--prefix=p/", "bbb", "/m"]),
        ('bucket = "b"\ndirectory = "/m"\nprefix = "p/"', ["other", "/n"], ["--prefix=p/", "other", "/n"]),
        ('directory = "/m"', ["--prefix", "q/", "other"], ["--prefix", "q/", "other", "/m"]),
        ("uid = 1", ["other", "/n"], ["other", "/n"]),
    ],
)
def test_what_cannot_change_under_a_mount(work: Path, text: str, given: list[str], expected: list[str]) -> None:
    """A daemon that takes over reads the file again, but serves the bucket and prefix that were mounted."""
    path = work / "x.conf"
    path.write_text(text.replace('"b"', '"bbb"'), encoding="utf-8")
    with main.make_context("s3mount", ["--config", str(path), *given]) as context:
        assert arguments_for_successors(context, given) == expected


def test_the_directory_of_names(work: Path) -> None:
    """--config NAME is /etc/s3mount/NAME.conf, and --check-config without a name looks at all of them."""
    (work / "etc").mkdir()
    for name, text in {"right": 'bucket = "bucket"\ndirectory = "/m"', "wrong": "uid = 'x'"}.items():
        (work / "etc" / f"{name}.conf").write_text(text, encoding="utf-8")
    (work / "etc/other.env").write_text("X=1", encoding="utf-8")
    (work / "upper").mkdir()
    (work / "rest").mkdir()
    script = f"""
        mount -t overlay overlay -o lowerdir=/etc,upperdir={work}/upper,workdir={work}/rest /etc
        mkdir -p /etc/s3mount && mount --bind {work}/etc /etc/s3mount
        command="$(command -v s3mount)"
        "$command" --check-config right
        ! "$command" --check-config
    """
    result = in_namespace(script, aws_environment(PATH=f"{Path(COMMAND).parent}:/usr/bin"))
    assert result.stdout.count("right.conf: OK, mounts bucket on /m") == 2
    assert [line.partition(" ")[0] for line in result.stderr.splitlines()] == ["/etc/s3mount/wrong.conf:1:"]


def test_without_any_file() -> None:
    """A name without a file is told with the path that was looked for."""
    result = CliRunner().invoke(main, ["--config", "nothing-has-this-name"])
    assert result.exit_code == 2
    assert "'/etc/s3mount/nothing-has-this-name.conf' cannot be read" in result.stderr
