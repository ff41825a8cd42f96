"""Exit codes and the one line: a whole table, stable, documented."""

import re
from pathlib import Path

import pytest

from s3mount import errors
from s3mount.daemon.exits import TABLE, ExitCode, line_for, verdict_for

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "operations.md"


def below(kind: type[errors.S3MountError]) -> list[type[errors.S3MountError]]:
    """A class and all under it that the package defines."""
    subs = [sub for sub in kind.__subclasses__() if sub.__module__ == errors.__name__]
    return [kind, *(found for sub in subs for found in below(sub))]


def test_codes_are_stable() -> None:
    """Scripts and units act on the numbers, so none may change its meaning."""
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "INTERNAL": 1,
        "USAGE": 2,
        "MOUNT_POINT": 3,
        "FUSE": 4,
        "BUCKET": 5,
        "ACCESS": 6,
        "ENDPOINT": 7,
        "NOT_ANSWERING": 8,
        "NOT_SAVED": 9,
    }


@pytest.mark.parametrize("kind", below(errors.StoreError), ids=lambda kind: kind.__name__)
def test_every_answer_of_the_store_is_explained(kind: type[errors.S3MountError]) -> None:
    """What S3 or the network can do to a start has a code of its own kind, and advice."""
    verdict = verdict_for(kind("x"))
    assert verdict.code in (ExitCode.BUCKET, ExitCode.ACCESS, ExitCode.ENDPOINT)
    assert verdict.advice


@pytest.mark.parametrize("kind", below(errors.StartupError)[1:], ids=lambda kind: kind.__name__)
def test_every_startup_error_is_explained(kind: type[errors.S3MountError]) -> None:
    """What stops a start has a row of its own; its message carries the advice where the row has none."""
    assert kind in TABLE
    assert verdict_for(kind("x")).code not in (ExitCode.OK, ExitCode.INTERNAL)


@pytest.mark.parametrize("kind", below(errors.FileSystemError), ids=lambda kind: kind.__name__)
def test_what_cannot_stop_a_start_is_a_bug(kind: type[errors.S3MountError]) -> None:
    """An error of a handler that ends the command is internal, and asks for a report."""
    assert verdict_for(kind("x")).code is ExitCode.INTERNAL
    assert "report it" in line_for(kind("x"))


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.BadOption, ExitCode.USAGE),
        (errors.MountPointUnusable, ExitCode.MOUNT_POINT),
        (errors.FuseUnavailable, ExitCode.FUSE),
        (errors.BucketNotFound, ExitCode.BUCKET),
        (errors.WrongRegion, ExitCode.BUCKET),
        (errors.AccessDenied, ExitCode.ACCESS),
        (errors.BadCredentials, ExitCode.ACCESS),
        (errors.ExpiredCredentials, ExitCode.ACCESS),
        (errors.NoCredentials, ExitCode.ACCESS),
        (errors.StoreUnreachable, ExitCode.ENDPOINT),
        (errors.UntrustedCertificate, ExitCode.ENDPOINT),
        (errors.NotS3, ExitCode.ENDPOINT),
        (errors.StoreThrottled, ExitCode.ENDPOINT),
        (errors.StoreTimeout, ExitCode.ENDPOINT),
        (errors.MountNotAnswering, ExitCode.NOT_ANSWERING),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_code(kind: type[errors.S3MountError], code: ExitCode) -> None:
    """Each kind of failure has the code that is documented for it."""
    assert verdict_for(kind("x")).code is code


@pytest.mark.parametrize("kind", below(errors.S3MountError), ids=lambda kind: kind.__name__)
def test_the_line_is_one_line(kind: type[errors.S3MountError]) -> None:
    """Whatever the message holds, what the command prints is one line with the advice at its end."""
    error = kind("first\nsecond\r\n\tthird")
    line = line_for(error)
    assert len(line.splitlines()) == 1
    assert "first" in line
    assert "third" in line
    assert line.endswith(verdict_for(error).advice)
    assert line == line.strip()


def test_the_line_says_where_it_happened() -> None:
    """Bucket, operation and S3's request id stand between what is wrong and what to do."""
    failure = errors.AccessDenied("denied", bucket="b", operation="ListObjectsV2", request_id="R1")
    line = line_for(failure)
    assert line.startswith("denied (operation=ListObjectsV2 bucket=b request-id=R1); ")
    assert line.endswith("s3:GetObject on its objects")


def test_every_code_is_documented() -> None:
    """docs/operations.md has a table row for each code, and for no other."""
    rows = re.findall(r"^\| *`?(\d+)`? *\|", DOCUMENTATION.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(int(row) for row in rows) == sorted(ExitCode)
