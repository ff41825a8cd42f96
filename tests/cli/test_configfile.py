"""Configuration files: what they may say, and how each mistake is told."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from s3mount.cli.configfile import ConfigFile, keys_of, locate, read
from s3mount.cli.mount import main
from s3mount.core.epochs import CachePolicy
from s3mount.core.policies import PathPolicy
from s3mount.core.ttl import INDEFINITE, MINIMAL
from s3mount.errors import BadOption
from tests.support.mounts import run_command

EXAMPLE = Path(__file__).parents[2] / "examples/example.conf"


def parsed(work: Path, text: str) -> ConfigFile:
    path = work / "x.conf"
    path.write_text(text, encoding="utf-8")
    return read(path, main.params)


def problems(work: Path, text: str) -> list[str]:
    found = parsed(work, text)
    return [each.told(Path("x.conf")) for each in found.problems]


def checked(path: Path) -> Result:
    return CliRunner().invoke(main, ["--check-config", str(path)])


def test_where_a_name_is() -> None:
    """A name is a file of /etc/s3mount; what has a slash is a path."""
    assert locate("train") == Path("/etc/s3mount/train.conf")
    assert (locate("./train"), locate("/a/b.toml")) == (Path("train"), Path("/a/b.toml"))


def test_values(work: Path) -> None:
    """Texts, numbers, switches and lists become what the flags would have got."""
    found = parsed(
        work,
        """
        bucket = "s3://b/p/"
        directory = "/srv/data"
        metadata-ttl = 300
        maximum-throughput-gbps = 12.5
        cache = ["/nvme0", "/nvme1"]
        cache-policy = "off"
        file-mode = "0640"
        debug = true
        allow-other = false
        """,
    )
    assert found.problems == []
    assert found.settings == {
        "bucket": "s3://b/p/", "directory": "/srv/data", "metadata_ttl": "300", "maximum_throughput_gbps": "12.5",
        "cache": ["/nvme0", "/nvme1"], "cache_policy": ["off"], "file_mode": "0640", "debug": True,
        "allow_other": False,
    }  # fmt: skip


def test_sections(work: Path) -> None:
    """A section holds what a path may have of its own; absent names are believed as long as others, unless it says."""
    found = parsed(
        work,
        """
        [path."datasets/**"]
        metadata-ttl = "indefinite"
        access = "read-only"
        [path."ckpt/**"]
        metadata-ttl = "minimal"
        negative-metadata-ttl = "indefinite"
        cache-policy = "off"
        access = "rw"
        [path.models]
        whole-file = true
        """,
    )
    assert found.problems == []
    assert found.paths == (
        ("datasets/**", PathPolicy(INDEFINITE, INDEFINITE, is_read_only=True)),
        ("ckpt/**", PathPolicy(MINIMAL, INDEFINITE, CachePolicy.OFF, is_read_only=False)),
        ("models", PathPolicy(is_whole=True)),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("metadata_ttl = 1", "x.conf:1: metadata_ttl: there is no such setting; did you mean metadata-ttl?"),
        ("#\nregoin = 'x'", "x.conf:2: regoin: there is no such setting; did you mean region?"),
        ("zzz = 1", "x.conf:1: zzz: there is no such setting"),
        ("config = 'x'", "x.conf:1: config: there is no such setting"),
        ("help = true", "x.conf:1: help: there is no such setting"),
        ("part-size = 'huge'", "x.conf:1: part-size: 'huge' is not a size; write a number with KiB, MiB or GiB"),
        ("uid = -1", "x.conf:1: uid: -1 is not in the range 0<=x<=4294967294."),
        ("debug = 'yes'", "x.conf:1: debug: it is on or off: write true or false, without quotes"),
        ("debug = 1", "x.conf:1: debug: it is on or off: write true or false, without quotes"),
        ("region = true", "x.conf:1: region: it takes a text in quotes or a number"),
        ("region = ['a']", "x.conf:1: region: it takes a text in quotes or a number"),
        ("region = {a = 1}", "x.conf:1: region: it takes a text in quotes or a number"),
        ("cache = [true]", "x.conf:1: cache: it takes a text in quotes or a number"),
        ("cache = 'rel'", "x.conf:1: cache: 'rel' is relative, and a service starts anywhere; write it from / on"),
        ("directory = 'd'", "x.conf:1: directory: 'd' is relative, and a service starts anywhere; write it from / on"),
        ("file-mode = 0o644", 'x.conf:1: file-mode: write octal digits in quotes, as "0644"'),
        ("ca-bundle = '/nonexistent'", "x.conf:1: ca-bundle: File '/nonexistent' does not exist."),
        ("a = [", "x.conf: not TOML: Invalid value (at end of document)"),
        ("\na = = 1", "x.conf:2: not TOML: Invalid value"),
        ("[paths.x]", "x.conf:1: [paths]: there is no such setting; did you mean path?"),
        ("path = 1", 'x.conf:1: path: what holds for a path stands under a header of its own: [path."datasets/**"]'),
        ("[path]\nx = 1", 'x.conf:2: [path] x: a path has a header of its own: [path."x"]'),
        ('[path."/x"]', """x.conf:1: [path."/x"]: '/x' begins with a slash; write a path inside the mount, as 'x'"""),
        ("[path.a.b]\nwhole-file = true", 'x.conf:1: [path."a.b"]: quote the path: [path."a/b"]'),
        (
            '[path."a"]\naccess = "no"',
            """x.conf:2: [path."a"] access: 'no' says nothing of who may write; write read-only or rw""",
        ),
        (
            '[path."a"]\nregion = "x"',
            'x.conf:2: [path."a"] region: there is no such setting',
        ),
        (
            '[path."a"]\nwhole-file = "no"',
            'x.conf:2: [path."a"] whole-file: it is on or off: write true or false, without quotes',
        ),
        (
            '[path."a"]\ncache-policy = "x/=pin"',
            """x.conf:2: [path."a"] cache-policy: 'x/=pin' has a prefix, but the header says which paths are meant; """
            "write pin",
        ),
        (
            '[path."a"]\n"metadata-ttl" = "never"',
            """x.conf:2: [path."a"] metadata-ttl: 'never' is not a time; write minimal, indefinite, or a duration """
            "such as 60 or 5min",
        ),
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_mistakes(work: Path, text: str, says: str) -> None:
    """A mistake in a configuration file is told in one line with file, line, section and key; an unknown key with
    what it may have been meant for.
    """
    assert problems(work, text) == [says]


@pytest.mark.parametrize("key", ["secret-access-key", "aws_access_key_id", "session-token", "password", "credentials"])
@pytest.mark.parametrize("header", ["", '[path."a"]\n'])
def test_no_secrets(work: Path, key: str, header: str) -> None:
    """Credentials are accepted neither in a configuration file nor on the command line, and the message says where
    they come from instead.
    """
    (line,) = problems(work, f"{header}{key} = 'x'")
    assert "they come from the environment, AWS's own files (profile says which part of them)" in line
    assert "'x'" not in line
    assert not [flag for flag in keys_of(main.params) if key.replace("_", "-") in flag]


def test_every_mistake_is_told(work: Path) -> None:
    """All mistakes come at once, in the order of the file, and what is right is taken."""
    found = parsed(work, 'uid = "x"\nregion = "r"\n[path."a"]\nx = 1\n[path."b"]\nwhole-file = true\naccess = 1\n')
    assert [each.line for each in found.problems] == [1, 4, 7]
    assert found.settings == {"region": "r"}
    assert found.paths == (("a", PathPolicy()), ("b", PathPolicy(is_whole=True)))


def test_a_line_that_looks_like_another(work: Path) -> None:
    """Where a longer value looks like a header or a key, the mistakes are found all the same."""
    text = 'fsname = """\n[path."a"]\nuid = 1\n[broken\n"""\nuid = "x"\n'
    (problem,) = parsed(work, text).problems
    assert problem.where == "uid"


@pytest.mark.parametrize(
    ("content", "says"), [(None, "cannot be read: No such file or directory"), (b"\xff", "is not UTF-8 text")]
)
def test_files_that_cannot_be_read(work: Path, content: bytes | None, says: str) -> None:
    """A file that is missing, or no text, is a bad option that names it."""
    if content is not None:
        (work / "x.conf").write_bytes(content)
    with pytest.raises(BadOption, match=says):
        read(work / "x.conf", main.params)


def test_arguments_are_keys() -> None:
    """Bucket and directory can stand in the file; what is about the command itself cannot."""
    keys = keys_of(main.params)
    assert isinstance(keys["bucket"], click.Argument)
    assert isinstance(keys["directory"], click.Argument)
    assert not {"config", "check-config", "version", "help", "o"} & keys.keys()


# -- the real command -------------------------------------------------------------------------


def test_check_config(work: Path) -> None:
    """`s3mount --check-config` ends with 0 and says what a file mounts, or with 2 and a line for each mistake."""
    path = work / "x.conf"
    path.write_text('bucket = "my-bucket"\ndirectory = "/srv/x"\n', encoding="utf-8")
    right = run_command("--check-config", str(path))
    assert (right.returncode, right.stdout, right.stderr) == (0, f"{path}: OK, mounts my-bucket on /srv/x\n", "")
    path.write_text('uid = "x"\nregoin = "x"\n', encoding="utf-8")
    wrong = run_command("--check-config", str(path))
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert [line.partition(" ")[0] for line in wrong.stderr.splitlines()] == [f"{path}:1:", f"{path}:2:"]
    started = run_command("--config", str(path))
    assert started.returncode == 2
    assert started.stderr.startswith(f"s3mount: {path}:1: uid: ")
    assert started.stderr.endswith(f"(and 1 more: s3mount --check-config {path})\n")


def test_settings_that_contradict_each_other(work: Path) -> None:
    """What is right by itself and wrong together is found, too, at the line of one of them."""
    path = work / "x.conf"
    path.write_text('allow-other = true\n\nallow-root = true\npart-size = "8MiB"\n', encoding="utf-8")
    result = checked(path)
    assert result.exit_code == 2
    assert result.stderr == f"{path}:1: --allow-other and --allow-root exclude each other\n"
    path.write_text('\nread-only = true\n[path."ckpt/**"]\naccess = "rw"\n', encoding="utf-8")
    result = checked(path)
    assert result.stderr == f"""{path}:2: --read-only excludes access = "rw" for the path 'ckpt/**'\n"""
    path.write_text("max-cache-size = 100\n", encoding="utf-8")
    assert checked(path).stderr.startswith(f"{path}:1: --max-cache-size, ")


def test_the_example_is_right() -> None:
    """The example that is installed passes its own check, and mounts what it says."""
    result = checked(EXAMPLE)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("OK, mounts s3://my-bucket/ on /srv/data\n")
