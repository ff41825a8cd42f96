"""s3mountctl doctor: what it finds of a host and a bucket, and what it says to do."""

import json
import subprocess
from pathlib import Path

import pytest

from s3mount.core.findings import Verdict
from s3mount.daemon import checkup
from tests.support.ctl import COMMAND, run_ctl
from tests.support.directory_bucket import NAME, directory_bucket
from tests.support.mounts import aws_environment
from tests.support.namespaces import NO_FUSE_DEV, as_nobody, in_namespace
from tests.support.proxy import Fault, Request, error_answer, proxy
from tests.support.servers import Server

pytestmark = pytest.mark.server


def findings(ran: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str, str]]:
    """Verdict, message and fix by subject."""
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert all(line["event"] == "finding" for line in told), ran
    return {line["subject"]: (line["verdict"], line["message"], line["fix"]) for line in told}


def examined(server: Server, bucket: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return run_ctl("doctor", bucket, "--endpoint-url", server.url, "--force-path-style", *flags)


def test_all_is_well(weed: Server, work: Path) -> None:
    """Each subject has a line; nothing is left in the bucket, not even of the permission to write, nor on the disk."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="a", Body=b"one")
    ran = examined(weed, bucket, "--write", "--json", "--cache", str(work))
    found = findings(ran)
    assert ran.returncode == 0
    bucket_lines = ("credentials", "region", "list", "get", "put", "clock")
    assert list(found) == [
        *("fuse", "kernel", "read-ahead", "abort", "memory", "descriptors", f"cache {work}"),
        *bucket_lines,
    ]
    assert all(found[subject][0] == "good" and not found[subject][2] for subject in bucket_lines)
    assert "environment" in found["credentials"][1]
    assert all(bool(fix) == (verdict != "good") for verdict, _, fix in found.values())
    assert [each["Key"] for each in weed.client.list_objects_v2(Bucket=bucket)["Contents"]] == ["a"]
    assert not weed.client.list_multipart_uploads(Bucket=bucket).get("Uploads")
    assert list(work.iterdir()) == []


def test_without_write_nothing_is_begun(weed: Server) -> None:
    """Without --write there is no request that could change anything."""
    bucket = weed.make_bucket()
    methods = set()

    def note(request: Request) -> None:
        methods.add(request.method)

    with proxy(weed.url) as front:
        front.decide = note
        ran = run_ctl("doctor", bucket, "--endpoint-url", front.url, "--force-path-style", "--json")
    assert ran.returncode == 0
    assert methods <= {"GET", "HEAD"}
    assert findings(ran)["get"][0] == "weak"


def test_a_directory_bucket() -> None:
    """Of a bucket of S3 Express its kind is told, and which permission is missing; a region that is not the zone's."""
    with directory_bucket() as (server, bucket):
        flags = ("doctor", NAME, "--endpoint-url", server.url, "--write", "--json")
        bucket.objects.put("a", b"one", {})
        found = findings(run_ctl(*flags))
        assert "S3 Express One Zone" in found["directory bucket"][1]
        assert {found[subject][0] for subject in ("directory bucket", "list", "get", "put", "clock")} == {"good"}
        assert (list(bucket.objects.stored), bucket.objects.uploads) == (["a"], {})
        verdict, message, fix = findings(run_ctl(*flags, "--region", "eu-west-1"))["directory bucket"]
        assert (verdict, fix) == ("weak", "leave --region out")
        assert "us-east-1" in message
        server.script = lambda call: error_answer(403, "AccessDenied")
        verdict, _, fix = findings(run_ctl(*flags))["list"]
        assert verdict == "bad"
        assert "s3express:CreateSession" in fix


@pytest.mark.parametrize(("subject", "method"), [("get", "GET"), ("put", "POST")])
def test_a_permission_is_missing(weed: Server, subject: str, method: str) -> None:
    """What S3 denies is BAD and says which permission; the rest is examined all the same."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="a", Body=b"one")

    def deny(request: Request) -> Fault | None:
        is_denied = request.method == method and not request.is_list
        return Fault(answer=error_answer(403, "AccessDenied")) if is_denied else None

    with proxy(weed.url) as front:
        front.decide = deny
        ran = run_ctl("doctor", bucket, "--endpoint-url", front.url, "--force-path-style", "--json", "--write")
    found = findings(ran)
    assert ran.returncode == 1
    assert [each for each, (verdict, _, _) in found.items() if verdict == "bad"] == [subject]
    assert "AccessDenied" in found[subject][1]
    assert "credentials need" in found[subject][2]


def test_wrong_credentials(weed: Server) -> None:
    """A wrong secret is found by the first request, with what to do; and the secret is not shown."""
    env = aws_environment(AWS_SECRET_ACCESS_KEY="wrong-and-secret")
    command = [*COMMAND, "doctor", weed.make_bucket(), "--endpoint-url", weed.url, "--force-path-style"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "BAD   list: S3 answered 403 SignatureDoesNotMatch" in ran.stdout
    assert "fix: check the access key and its secret" in ran.stdout
    assert "wrong-and-secret" not in ran.stdout + ran.stderr


def test_no_credentials(weed: Server) -> None:
    """Without any, that is the finding, and the bucket is not asked."""
    env = {name: value for name, value in aws_environment().items() if not name.startswith("AWS_ACCESS")}
    env["AWS_EC2_METADATA_DISABLED"] = "true"
    command = [*COMMAND, "doctor", "some-bucket", "--endpoint-url", weed.url, "--force-path-style", "--json"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert findings(ran)["credentials"][0] == "bad"


def test_an_option_that_cannot_be_meant() -> None:
    """It is the start's own message and status."""
    ran = run_ctl("doctor", "some-bucket", "--endpoint-url", "localhost:9000")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "is not a URL" in ran.stderr


@pytest.mark.mount
def test_no_fuse(weed: Server) -> None:
    """A host without the device is BAD, and so is nobody's fusermount3."""
    bucket = weed.make_bucket()
    line = [*COMMAND, "doctor", bucket, "--endpoint-url", weed.url, "--force-path-style"]
    ran = in_namespace(NO_FUSE_DEV + as_nobody(*line))
    assert ran.returncode == 1
    assert "BAD   fuse: /dev/fuse does not exist" in ran.stdout
    assert "fix: load the module (modprobe fuse)" in ran.stdout


@pytest.mark.parametrize(
    ("mode", "verdict", "says"),
    [(0o777, Verdict.BAD, "chmod 700"), (0o700, None, ""), (None, Verdict.WEAK, "mounting makes it")],
)
def test_cache_directories(work: Path, mode: int | None, verdict: Verdict | None, says: str) -> None:
    """A directory that others may write to is BAD, with the command; one that is fit gets its speed; none is made."""
    directory = work / "cache"
    if mode is not None:
        directory.mkdir()
        directory.chmod(mode)
    found = checkup.disk_finding(directory, None)
    assert says in found.fix
    if verdict is None:
        assert found.verdict in (Verdict.GOOD, Verdict.WEAK)
        assert "/s, reads " in found.message
        assert list(directory.iterdir()) == []
    else:
        assert found.verdict is verdict
    assert directory.exists() == (mode is not None)


@pytest.mark.parametrize(
    ("skew_s", "verdict", "says"),
    [
        (None, Verdict.GOOD, "does not tell"),
        (3.0, Verdict.GOOD, "3 s ahead"),
        (-500.0, Verdict.WEAK, "500 s behind"),
        (1000.0, Verdict.BAD, "1000 s ahead"),
    ],
)
def test_clocks(skew_s: float | None, verdict: Verdict, says: str) -> None:
    """S3 refuses requests from 15 minutes on, so half of that is worth a word."""
    found = checkup._clock(skew_s)
    assert found.verdict is verdict
    assert says in found.message
    assert bool(found.fix) == (verdict is not Verdict.GOOD)
