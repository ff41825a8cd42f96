"""The command's flags: which exist, what each means in the configuration, and what is refused."""

import os
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from s3mount import __version__
from s3mount.cache.ages import MetadataConfig
from s3mount.cli.mount import build_config, main
from s3mount.config import MountConfig
from s3mount.core.backoff import Patience
from s3mount.core.location import Location
from s3mount.core.ttl import INDEFINITE, MINIMAL, TimeToLive
from s3mount.daemon.exits import ExitCode
from s3mount.errors import BadOption
from s3mount.fs.object_headers import ObjectHeaders
from s3mount.fs.write_policy import WritePolicy
from s3mount.listening import Listen
from s3mount.store.write_config import WriteConfig
from s3mount.units import GIB, MIB
from tests.support.mounts import aws_environment, run_command
from tests.support.refusals import refusal, refusal_in_both_modes

#: The issue's list: Mountpoint's names for the same things.
FLAGS = {
    "--prefix", "--region", "--endpoint-url", "--force-path-style", "--profile", "--no-sign-request",
    "--requester-pays", "--expected-bucket-owner", "--ca-bundle", "--read-only", "--allow-other", "--allow-root",
    "--uid", "--gid", "--file-mode", "--dir-mode", "--auto-unmount", "--part-size", "--maximum-throughput-gbps",
    "--no-takeover", "--hang-timeout",
    "--memory-target", "--request-deadline", "--foreground", "-f", "--debug", "-d", "--log-directory", "-l",
    "--no-log", "--version", "--without-listing", "--metadata-ttl", "--negative-metadata-ttl",
    "--max-threads", "--no-kernel-tuning", "--read-ahead-kib",
    "--on-outage", "--log-json", "--metrics",
    "--config", "--check-config", "-o", "--noexec", "--fsname",
    "--cache", "--max-cache-size", "--cache-min-free", "--cache-block-size", "--cache-policy", "--cache-group",
    "--rw", "--allow-overwrite", "--allow-delete", "--write-part-size", "--upload-checksums", "--storage-class",
    "--sse", "--sse-kms-key-id", "--infer-content-type", "--spool-dir", "--no-spool-streamed", "--no-dir-markers",
    "--incremental-upload", "--abort-uploads", "--rename-dir-limit", "--posix-metadata",
}  # fmt: skip


def configured(*flags: str, bucket: str = "bucket", env: Mapping[str, str] | None = None) -> MountConfig:
    """What the command line means."""
    with main.make_context("s3mount", [bucket, "/mnt/x", *flags]) as context:
        values = dict(context.params)
    return build_config(values.pop("bucket"), values.pop("directory"), values, env or {})


def test_the_flags_are_the_documented_ones() -> None:
    """A flag more or fewer is a change of the interface."""
    assert {name for parameter in main.params for name in parameter.opts if name.startswith("-")} == FLAGS


def test_where_metrics_and_the_log_go() -> None:
    """--metrics names an address or a path, --log-json the format; the journal is what systemd says it is."""
    config = configured("--metrics", "127.0.0.1:9200", "--log-json", env={"JOURNAL_STREAM": "8:1"})
    assert (config.metrics, config.log.is_json) == (Listen("127.0.0.1:9200", None, "127.0.0.1", 9200), True)
    assert config.log.journal_stream == "8:1"
    assert (configured().metrics, configured().log.is_json) == (None, False)
    with pytest.raises(BadOption, match="--log-json"):
        configured("--no-log", "--log-json")
    with pytest.raises(BadOption, match="ADDRESS:PORT"):
        configured("--metrics", "9200")


def test_version_and_help() -> None:
    """--version names the version, --help every flag, and both are successes."""
    version, help_text = run_command("--version"), run_command("--help")
    assert (version.returncode, help_text.returncode) == (0, 0)
    assert version.stdout == f"s3mount, version {__version__}\n"
    assert all(flag in help_text.stdout for flag in FLAGS)


def test_defaults() -> None:
    """Without flags: the user's own files, read-only for others, new files only, found region, 8 MiB parts, 60 s."""
    config = configured()
    assert config.s3.location == Location("bucket")
    assert (config.s3.region, config.s3.inferred_region, config.s3.endpoint_url) == (None, None, None)
    assert not any([config.s3.force_path_style, config.s3.is_anonymous, config.s3.requester_pays])
    assert config.s3.max_attempts == 10
    assert config.s3.may_list
    assert (config.owner.uid, config.owner.gid) == (os.getuid(), os.getgid())
    assert (config.owner.file_mode, config.owner.dir_mode) == (0o644, 0o755)
    assert config.read.part_size == config.crt.part_size == 8 * MIB
    assert config.guard.deadline_s == 60.0
    assert config.metadata == MetadataConfig(MINIMAL, MINIMAL)
    assert (config.fuse.mount_point, config.fuse.source) == ("/mnt/x", "bucket")
    assert not any([config.fuse.allow_other, config.fuse.allow_root, config.fuse.auto_unmount])
    assert (config.fuse.max_background, config.fuse.read_ahead_kib) == (256, 1024)
    assert config.log.directory is None
    assert not any([config.log.is_debug, config.log.is_off])
    assert config.writing.policy == WritePolicy(is_read_only=False)
    assert (config.writing.part_size, config.writing.objects) == (8 * MIB, WriteConfig("crc32c"))
    assert config.writing.keeps_streamed
    assert config.writing.has_markers


@pytest.mark.parametrize(
    ("flags", "path", "expected"),
    [
        (["--prefix", "a/b/"], "s3.location", Location("bucket", "a/b/")),
        (["--region", "eu-west-1"], "s3.region", "eu-west-1"),
        (["--endpoint-url", "http://h:9000"], "s3.endpoint_url", "http://h:9000"),
        (["--force-path-style"], "s3.force_path_style", True),
        (["--profile", "p"], "s3.profile", "p"),
        (["--no-sign-request"], "s3.is_anonymous", True),
        (["--requester-pays"], "s3.arguments", {"RequestPayer": "requester"}),
        (["--without-listing"], "s3.may_list", False),
        (["--expected-bucket-owner", "123456789012"], "s3.arguments", {"ExpectedBucketOwner": "123456789012"}),
        (["--ca-bundle", __file__], "s3.ca_bundle", __file__),
        (["--allow-other"], "fuse.allow_other", True),
        (["--allow-root"], "fuse.allow_root", True),
        (["--auto-unmount"], "fuse.auto_unmount", True),
        (["--noexec"], "fuse.is_noexec", True),
        (["--fsname", "mountpoint-s3"], "fuse.source", "mountpoint-s3"),
        (["-o", "ro,_netdev,uid=1234"], "owner.uid", 1234),
        (["--read-ahead-kib", "128"], "fuse.read_ahead_kib", 128),
        (["--no-kernel-tuning"], "fuse.read_ahead_kib", None),
        (["--no-kernel-tuning", "--read-ahead-kib", "512"], "fuse.read_ahead_kib", None),
        (["--maximum-throughput-gbps", "100"], "fuse.max_background", 256),
        (["--maximum-throughput-gbps", "200"], "fuse.max_background", 500),
        (["--maximum-throughput-gbps", "4000"], "fuse.max_background", 1024),
        (["--uid", "1234"], "owner.uid", 1234),
        (["--gid", "0"], "owner.gid", 0),
        (["--file-mode", "0400"], "owner.file_mode", 0o400),
        (["--dir-mode", "500"], "owner.dir_mode", 0o500),
        (["--part-size", "16MiB"], "read.part_size", 16 * MIB),
        (["--part-size", "16777216"], "crt.part_size", 16 * MIB),
        (["--memory-target", "1024"], "read.budget_bytes", 640 * MIB),
        (["--maximum-throughput-gbps", "100"], "crt.connections", 250),
        (["--metadata-ttl", "5min"], "metadata", MetadataConfig(TimeToLive(300), TimeToLive(300))),
        (["--metadata-ttl", "indefinite"], "metadata", MetadataConfig(INDEFINITE, INDEFINITE)),
        (["--metadata-ttl", "60", "--negative-metadata-ttl", "0"], "metadata", MetadataConfig(TimeToLive(60), MINIMAL)),
        (["--negative-metadata-ttl", "60"], "metadata", MetadataConfig(MINIMAL, TimeToLive(60))),
        (["--request-deadline", "2min"], "guard.deadline_s", 120.0),
        (["--request-deadline", "2min"], "patience", Patience(120.0, 90.0, 10)),
        (["--on-outage", "wait"], "patience", Patience(60.0, 90.0, 10)),
        (["--on-outage", "wait:5min"], "patience", Patience(60.0, 300.0, 10)),
        (["--on-outage", "error"], "patience", Patience(60.0, 0.0, 10)),
        (["-d"], "log.is_debug", True),
        (["--no-log"], "log.is_off", True),
        (["-l", "/var/log/x"], "log.directory", Path("/var/log/x")),
        (["--read-only"], "fuse.is_read_only", True),
        (["--read-only"], "writing.policy", WritePolicy(is_read_only=True)),
        (["--rw"], "writing.policy", WritePolicy(is_read_only=False, is_rw=True)),
        (["--rw", "--metadata-ttl", "60"], "metadata", MetadataConfig(TimeToLive(60), MINIMAL)),
        (["--rw", "--cache", "/c"], "metadata", MetadataConfig(MINIMAL, MINIMAL)),
        (["--allow-overwrite"], "writing.policy", WritePolicy(is_read_only=False, may_overwrite=True)),
        (["--allow-delete"], "writing.policy", WritePolicy(is_read_only=False, may_delete=True)),
        (["--write-part-size", "16MiB"], "writing.part_size", 16 * MIB),
        (["--upload-checksums", "crc64nvme"], "writing.objects", WriteConfig("crc64nvme")),
        (["--storage-class", "STANDARD_IA"], "writing.objects", WriteConfig(storage_class="STANDARD_IA")),
        (["--sse", "AES256"], "writing.objects", WriteConfig(sse="AES256")),
        (
            ["--sse", "aws:kms", "--sse-kms-key-id", "k"],
            "writing.objects",
            WriteConfig(sse="aws:kms", sse_kms_key_id="k"),
        ),
        (["--infer-content-type"], "writing.headers", ObjectHeaders(infers_content_type=True)),
        (["--spool-dir", "/s"], "writing.spool.parent", Path("/s")),
        (["--cache", "/c"], "writing.spool.parent", Path("/c/spool")),
        (["--no-spool-streamed"], "writing.keeps_streamed", False),
        (["--no-dir-markers"], "writing.has_markers", False),
        (["--rename-dir-limit", "5"], "writing.rename_dir_limit", 5),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_a_flag_means(flags: list[str], path: str, expected: Any) -> None:
    """Each flag arrives at the one place of the configuration that it is about."""
    assert attrgetter(path)(configured(*flags)) == expected


def test_mount_options() -> None:
    """What the kernel is told: what the flags ask for, to check modes where others come in."""
    plain = configured().fuse.options
    assert configured("--read-only").fuse.options == plain | {"ro"}
    assert {"nosuid", "nodev", "fsname=bucket", "subtype=s3mount"} <= plain
    assert "default_permissions" not in plain
    assert configured("--auto-unmount").fuse.options == plain | {"auto_unmount"}
    assert configured("--noexec").fuse.options == plain | {"noexec"}
    for flag in ("allow-other", "allow-root"):
        assert configured(f"--{flag}").fuse.options == plain | {flag.replace("-", "_"), "default_permissions"}


def test_bucket_as_address() -> None:
    """s3://bucket/prefix/ is a bucket and a prefix, and shows as both in `mount`."""
    config = configured(bucket="s3://bucket/some/prefix/")
    assert config.s3.location == Location("bucket", "some/prefix/")
    assert config.fuse.source == "bucket/some/prefix/"


def test_relative_paths_survive_the_change_of_directory(monkeypatch: pytest.MonkeyPatch, work: Path) -> None:
    """The background lives in /, so the directories and the CA bundle of the command line are made absolute."""
    monkeypatch.chdir(work)
    (work / "ca.pem").touch()
    flags = ["bucket", "mnt", "--ca-bundle", "ca.pem", "-l", "logs"]
    with main.make_context("s3mount", flags) as context:
        values = dict(context.params)
    config = build_config(values.pop("bucket"), values.pop("directory"), values, {})
    assert config.fuse.mount_point == str(work / "mnt")
    assert config.log.directory == work / "logs"
    assert config.s3.ca_bundle == str(work / "ca.pem")


@pytest.mark.parametrize(
    ("env", "path", "expected"),
    [
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "x"}, "s3.inferred_region", "eu-west-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-1"}, "s3.inferred_region", "eu-west-1"),
        ({"AWS_ENDPOINT_URL": "https://h"}, "s3.endpoint_url", "https://h"),
        ({"AWS_ENDPOINT_URL": "https://h", "AWS_ENDPOINT_URL_S3": "https://s3"}, "s3.endpoint_url", "https://s3"),
        ({"AWS_ENDPOINT_URL": ""}, "s3.endpoint_url", None),
        ({"AWS_CA_BUNDLE": __file__}, "s3.ca_bundle", __file__),
        ({"AWS_MAX_ATTEMPTS": "3"}, "s3.max_attempts", 3),
        ({"AWS_MAX_ATTEMPTS": "3"}, "patience.max_attempts", 3),
    ],
    ids=str,
)
def test_environment(env: dict[str, str], path: str, expected: Any) -> None:
    """The variables of the AWS tools mean what they mean there; an empty one means nothing."""
    assert attrgetter(path)(configured(env=env)) == expected


def test_flags_win_over_the_environment() -> None:
    """What is typed counts more than what is set."""
    env = {"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "https://env", "AWS_CA_BUNDLE": "/nonexistent"}
    config = configured("--region", "us-west-2", "--endpoint-url", "https://flag", "--ca-bundle", __file__, env=env)
    assert (config.s3.region, config.s3.endpoint_url, config.s3.ca_bundle) == ("us-west-2", "https://flag", __file__)


@pytest.mark.parametrize(
    ("flags", "env", "says"),
    [
        (["--allow-other", "--allow-root"], {}, "exclude each other"),
        (["--no-sign-request", "--profile", "p"], {}, "exclude each other"),
        (["--no-log", "--debug"], {}, "--no-log excludes"),
        (["--no-log", "-l", "/x"], {}, "--no-log excludes"),
        (["-l", "/mnt/x"], {}, "lies inside the mount point"),
        (["-l", "/mnt/x/y/../z"], {}, "lies inside the mount point"),
        (["--endpoint-url", ""], {}, "--endpoint-url '' is not a URL"),
        (["--endpoint-url", "host:9000"], {}, "is not a URL; write https://HOST"),
        (["--endpoint-url", "ftp://host"], {}, "is not a URL"),
        (["--endpoint-url", "http://"], {}, "is not a URL"),
        (["--endpoint-url", "http://[::1"], {}, "is not a URL"),
        (["--endpoint-url", "https://user:word@host"], {}, "--endpoint-url has a user or a password in it"),
        (["--endpoint-url", "http://host:99999"], {}, "is not a URL"),
        ([], {"AWS_ENDPOINT_URL": "host"}, "AWS_ENDPOINT_URL 'host' is not a URL"),
        ([], {"AWS_ENDPOINT_URL_S3": "host"}, "AWS_ENDPOINT_URL_S3 'host' is not a URL"),
        ([], {"AWS_CA_BUNDLE": "/nonexistent"}, "AWS_CA_BUNDLE names '/nonexistent'"),
        ([], {"AWS_MAX_ATTEMPTS": "0"}, "AWS_MAX_ATTEMPTS is '0'"),
        ([], {"AWS_MAX_ATTEMPTS": "many"}, "at least 1"),
        ([], {"AWS_MAX_ATTEMPTS": "²"}, "at least 1"),
    ],
    ids=str,
)
def test_contradictions(flags: list[str], env: dict[str, str], says: str) -> None:
    """What cannot be meant is refused before anything is started."""
    with pytest.raises(BadOption) as raised:
        configured(*flags, env=env)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--part-size", "1"], "--part-size must be between 5 MiB and 5 GiB"),
        (["--part-size", "-8MiB"], "is not a size"),
        (["--part-size", str(10**400)], "--part-size"),
        (["--memory-target", "10"], "--memory-target must be at least 256 MiB"),
        (["--file-mode", "999"], "'999' is not a mode"),
        (["--dir-mode", "01777"], "'01777' is not a mode"),
        (["--uid", "-1"], "--uid"),
        (["--uid", str(2**32 - 1)], "--uid"),
        (["--gid", "staff"], "'staff' is not a valid integer"),
        (["--request-deadline", "0"], "--request-deadline must be greater than 0"),
        (["--request-deadline", "soon"], "'soon' is not a duration"),
        (["--on-outage", "retry"], "write wait, wait:SECONDS (more than 0) or error"),
        (["--metadata-ttl", "never"], "'never' is not a time; write minimal, indefinite"),
        (["--negative-metadata-ttl", "200000d"], "more than 100 years"),
        (["--maximum-throughput-gbps", "nan"], "--maximum-throughput-gbps must be a number greater than 0"),
        (["--maximum-throughput-gbps", "inf"], "--maximum-throughput-gbps must be a number greater than 0"),
        (["--ca-bundle", "/nonexistent"], "'/nonexistent' does not exist"),
        (["--read-ahead-kib", "3"], "--read-ahead-kib"),
        (["--read-ahead-kib", "16385"], "--read-ahead-kib"),
        (["--max-threads", "0"], "--max-threads"),
        (["--max-threads", "many"], "--max-threads"),
        (["--prefix", "data"], "the prefix 'data' must end with '/'; did you mean 'data/'?"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_nonsense(flags: list[str], says: str) -> None:
    """What an option cannot mean is refused with its name."""
    with pytest.raises(BadOption) as raised:
        configured(*flags)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("bucket", "says"),
    [
        ("s3://bucket/data", "the prefix 'data' must end with '/'"),
        ("arn:aws:s3:::bucket", "is not an access point ARN (arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME)"),
        ("arn:aws:s3:us-east-1:123456789012:accesspoint", "is not an access point ARN"),
        ("/data", "'/data' is not a bucket name"),
        ("data--x-s3", "is not the name of a directory bucket: NAME--ZONE--x-s3"),
        ("data--use1-az4--xa-s3", "access points of directory buckets are not supported"),
    ],
)
def test_not_a_bucket(bucket: str, says: str) -> None:
    """An address, a name or an ARN that cannot be meant is refused before S3 is asked."""
    with pytest.raises(BadOption) as raised:
        configured(bucket=bucket)
    assert says in str(raised.value)


# -- the real command -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--part-size", "huge"], "'huge' is not a size"),
        (["--region", "us east 1"], "region 'us east 1'"),
        (["--ca-bundle", __file__], "CA bundle cannot be used"),
        (["--cash", "/x"], "No such option"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_the_command_refuses_nonsense(work: Path, flags: list[str], says: str) -> None:
    """The command refuses it in one line that names the option, with the exit code for usage."""
    line = refusal(work, ExitCode.USAGE, "bucket", str(work), "--endpoint-url", "http://127.0.0.1:1", *flags)
    assert line.startswith("s3mount: ")
    assert says in line


def test_both_modes_refuse_alike(work: Path) -> None:
    """A bucket that cannot be meant is refused with the same line in the background and in the foreground."""
    assert "'/data' is not a bucket name" in refusal_in_both_modes(work, ExitCode.USAGE, "/data", str(work))


@pytest.mark.parametrize("flag", ["--no-sign-request", "--requester-pays"])
def test_what_a_directory_bucket_has_not(work: Path, flag: str) -> None:
    """Access without a session is refused before S3 is asked."""
    says = refusal(work, ExitCode.USAGE, "data--use1-az4--x-s3", str(work), flag)
    assert f"{flag}: a directory bucket (S3 Express One Zone) does not have that" in says


@pytest.mark.parametrize(("arguments", "says"), [([], "'BUCKET'"), (["bucket"], "'DIRECTORY'")])
def test_arguments_missing(work: Path, arguments: list[str], says: str) -> None:
    """A forgotten argument is named, with where to read about it, in one line."""
    line = refusal(work, ExitCode.USAGE, *arguments)
    assert says in line
    assert "s3mount --help" in line


def test_endpoint_of_the_environment_is_checked(work: Path) -> None:
    """A wrong AWS_ENDPOINT_URL is named as such, not as a failure of the daemon."""
    env = aws_environment(AWS_ENDPOINT_URL="localhost:9000")
    assert "AWS_ENDPOINT_URL 'localhost:9000' is not a URL" in refusal(
        work, ExitCode.USAGE, "bucket", str(work), env=env
    )


def test_memory_target_is_shared() -> None:
    """A quarter of a large target is for what is on its way, an eighth for the heap's holes, the rest to read ahead."""
    assert configured("--memory-target", "4096").read.budget_bytes == 4 * GIB * 5 // 8


def test_max_threads_is_without_effect() -> None:
    """Whatever a script that was written for Mountpoint says, the configuration is the same."""
    assert configured("--max-threads", "16") == configured()


def test_a_memory_target_beyond_the_limit_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """One line names both, and the mount goes on; a target within the limit is silent."""
    configured("--memory-target", "1000TiB")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("s3mount: --memory-target 1000 TiB is more than the ")
    assert line.endswith("that this process may use")
    configured("--memory-target", "256MiB")
    assert capsys.readouterr().err == ""
