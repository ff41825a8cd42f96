"""What can be wrong with the bucket, the credentials and the endpoint: each with its code and line."""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from s3mount.daemon.exits import ExitCode
from tests.support.certificates import make_authority
from tests.support.mounts import aws_environment, mounted
from tests.support.processes import KEY, SECRET, free_port
from tests.support.proxy import error_answer
from tests.support.refusals import refusal, refusal_in_both_modes
from tests.support.scripted import HANG, Script, ScriptedBucket, answer, is_from_crt, scripted
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

#: An endpoint that is no use is told after 10 s (store.connect) and a start, which takes seconds more on a loaded
#: machine; the two clients alone would take minutes.
WITHIN_S = 45.0
BUCKET = "scripted-bucket"
HTML = b"<!DOCTYPE html><html><body>It works!</body></html>"


@pytest.fixture
def mnt(work: Path) -> Path:
    """An empty directory to mount on."""
    path = work / "mnt"
    path.mkdir()
    return path


def at(url: str, mnt: Path, bucket: str = BUCKET) -> list[str]:
    """The arguments for a bucket at an endpoint."""
    return [bucket, str(mnt), "--endpoint-url", url, "--force-path-style"]


def test_no_such_bucket(moto_server: Server, mnt: Path) -> None:
    """A bucket that does not exist is named, with what to check."""
    arguments = at(moto_server.url, mnt, "no-such-bucket")
    line = refusal(mnt, ExitCode.BUCKET, *arguments)
    assert "NoSuchBucket" in line
    assert "bucket=no-such-bucket" in line
    assert "check the name" in line
    assert "NoSuchBucket" in refusal(mnt, ExitCode.BUCKET, *arguments, "--foreground")


@pytest.mark.parametrize(
    ("status", "code", "expected", "advice"),
    [
        (403, "AllAccessDisabled", ExitCode.ACCESS, "s3:ListBucket"),
        (400, "ExpiredToken", ExitCode.ACCESS, "renew the session or token"),
        (403, "RequestTimeTooSkewed", ExitCode.ACCESS, "this host's clock"),
        (404, "NoSuchBucket", ExitCode.BUCKET, "check the name"),
        (503, "SlowDown", ExitCode.ENDPOINT, "the server is overloaded"),
        (500, "InternalError", ExitCode.ENDPOINT, "check --endpoint-url"),
    ],
)
def test_refused_by_s3(mnt: Path, status: int, code: str, expected: ExitCode, advice: str) -> None:
    """S3's own code and message, its request id, the bucket, and what to do stand in one line."""
    env = aws_environment(AWS_MAX_ATTEMPTS="2")
    with scripted(lambda _: error_answer(status, code, "the reason")) as server:
        line = refusal(mnt, expected, *at(server.url, mnt), env=env)
    for part in (f"S3 answered {status} {code}: the reason", f"bucket={BUCKET}", "request-id=PROXY", advice):
        assert part in line


def test_access_denied(mnt: Path) -> None:
    """Credentials without the permission: the line names the permissions, the same in both modes."""
    with scripted(lambda _: error_answer(403, "AccessDenied", "not you")) as server:
        line = refusal_in_both_modes(mnt, ExitCode.ACCESS, *at(server.url, mnt))
    for part in ("AccessDenied: not you", BUCKET, "s3:ListBucket", "--without-listing", "s3:GetObject on its objects"):
        assert part in line


def test_what_s3_says_cannot_break_the_line(mnt: Path) -> None:
    """Newlines and terminal codes in an answer reach the terminal escaped, still as one line."""
    with scripted(lambda _: error_answer(403, "AccessDenied", "first\nsecond&#155;31m")) as server:
        line = refusal(mnt, ExitCode.ACCESS, *at(server.url, mnt))
    assert "first" in line
    assert "second" in line
    assert line.isprintable()


def test_only_the_other_client_is_denied(mnt: Path) -> None:
    """The client that reads is proven before the mount says ready, not only the one that lists."""
    bucket = ScriptedBucket(BUCKET)
    with scripted(lambda call: error_answer(403, "AccessDenied") if is_from_crt(call) else bucket(call)) as server:
        line = refusal(mnt, ExitCode.ACCESS, *at(server.url, mnt))
    assert "AccessDenied" in line


@pytest.mark.parametrize(
    ("key", "secret", "code"), [(KEY, "wrong", "SignatureDoesNotMatch"), ("wrong", SECRET, "InvalidAccessKeyId")]
)
def test_bad_credentials(mnt: Path, key: str, secret: str, code: str) -> None:
    """A key S3 does not know, or a wrong secret: check them; the secret is not shown."""
    env = aws_environment(AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret)
    with scripted(ScriptedBucket(BUCKET)) as server:
        line = refusal(mnt, ExitCode.ACCESS, *at(server.url, mnt), env=env)
    assert code in line
    assert "check the access key and its secret" in line
    assert secret not in line.replace("secret;", "").replace("its secret", "")


def test_no_credentials(mnt: Path) -> None:
    """No provider of the chain has any: nothing is asked, and four ways out are named."""
    env = aws_environment()
    del env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"]
    with scripted(ScriptedBucket(BUCKET)) as server:
        line = refusal_in_both_modes(mnt, ExitCode.ACCESS, *at(server.url, mnt), env=env)
        assert server.calls == []
    assert "no credentials were found" in line
    for way in ("aws configure", "AWS_PROFILE", "--profile", "--no-sign-request"):
        assert way in line


def test_half_of_the_credentials(mnt: Path) -> None:
    """A key without its secret says which variable is missing."""
    env = aws_environment()
    del env["AWS_SECRET_ACCESS_KEY"]
    line = refusal(mnt, ExitCode.ACCESS, *at("http://127.0.0.1:1", mnt), env=env)
    assert "AWS_SECRET_ACCESS_KEY" in line


def test_no_such_profile(mnt: Path) -> None:
    """A profile that no file has is an error of access that names it, not of the endpoint."""
    line = refusal(mnt, ExitCode.ACCESS, *at("http://127.0.0.1:1", mnt), "--profile", "nobody")
    assert "(nobody)" in line
    assert "--profile" in line


@pytest.mark.parametrize("malformed", [False, True], ids=["PermanentRedirect", "AuthorizationHeaderMalformed"])
def test_wrong_region_given(mnt: Path, malformed: bool) -> None:  # noqa: FBT001
    """A region the user chose is not corrected silently: both regions are named."""
    with scripted(ScriptedBucket(BUCKET, region="eu-west-1", malformed=malformed)) as server:
        line = refusal_in_both_modes(mnt, ExitCode.BUCKET, *at(server.url, mnt), "--region", "us-west-2")
    assert "is in region eu-west-1, not in us-west-2" in line
    assert "--region" in line


def test_wrong_region_in_the_environment_is_corrected(work: Path) -> None:
    """AWS_REGION is a guess: the bucket's answer corrects it and the mount reads."""
    bucket = ScriptedBucket(BUCKET, region="eu-west-1")
    bucket.objects["a.txt"] = b"hello"
    env = aws_environment(AWS_REGION="us-west-2")
    with scripted(bucket) as server, mounted(BUCKET, work, url=server.url, env=env) as mount:
        assert (mount.path / "a.txt").read_bytes() == b"hello"
        assert "eu-west-1" in mount.log


# -- endpoints that are no use ----------------------------------------------------------------


def test_connection_refused(mnt: Path) -> None:
    """Nobody listens: said at once, with the address."""
    url = f"http://127.0.0.1:{free_port()}"
    line = refusal(mnt, ExitCode.ENDPOINT, *at(url, mnt), within_s=WITHIN_S)
    assert url in line
    assert "check --endpoint-url" in line


def test_endpoints_that_never_answer(work: Path) -> None:
    """Dropped packets, a server that takes the request and is silent, an SSH server: each is told soon."""
    with (
        _black_hole() as nowhere,
        scripted(lambda _: HANG) as silent,
        _greeting(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n") as ssh,
        ThreadPoolExecutor(2) as pool,  # no more than cores: the time is measured
    ):

        def line_of(name: str, url: str) -> str:
            mnt = work / name
            mnt.mkdir()
            return refusal(mnt, ExitCode.ENDPOINT, *at(url, mnt), within_s=WITHIN_S)

        lines = list(pool.map(line_of, ("nowhere", "silent", "ssh"), (nowhere, silent.url, ssh)))
    for line in lines:
        assert "check --endpoint-url" in line


@pytest.mark.parametrize(
    "script",
    [
        lambda _: answer(200, HTML, Content_Type="text/html"),
        lambda _: answer(404, HTML, Content_Type="text/html"),
        lambda _: answer(200, b'{"ok": true}', Content_Type="application/json"),
        lambda _: answer(200, b"<Other><Xml/></Other>", Content_Type="application/xml"),
        lambda _: answer(200),
    ],
    ids=["html", "html-404", "json", "other-xml", "empty"],
)
def test_a_web_server_that_is_not_s3(mnt: Path, script: Script) -> None:
    """Something else answers there: the line says to check the endpoint."""
    with scripted(script) as server:
        line = refusal(mnt, ExitCode.ENDPOINT, *at(server.url, mnt), within_s=WITHIN_S)
    assert "check --endpoint-url" in line


def test_https_to_a_server_without_tls(mnt: Path) -> None:
    """https:// written where the server speaks plain http ends soon."""
    with scripted(ScriptedBucket(BUCKET)) as server:
        url = server.url.replace("http://", "https://")
        line = refusal(mnt, ExitCode.ENDPOINT, *at(url, mnt), within_s=WITHIN_S)
    assert "does not speak TLS" in line
    assert "not trusted" not in line
    assert BUCKET in line


def test_untrusted_certificate(work: Path, mnt: Path) -> None:
    """A certificate of an unknown authority is refused soon, in both modes; its CA bundle is the way out."""
    authority = make_authority(work / "ca")
    bucket = ScriptedBucket(BUCKET)
    bucket.objects["a.txt"] = b"hello"
    with scripted(bucket, authority.server) as server:
        line = refusal_in_both_modes(mnt, ExitCode.ENDPOINT, *at(server.url, mnt), within_s=WITHIN_S)
        assert "certificate is not trusted" in line
        assert "--ca-bundle or AWS_CA_BUNDLE" in line
        assert server.calls == []
        with mounted(BUCKET, work, "--ca-bundle", str(authority.bundle), url=server.url) as mount:
            assert (mount.path / "a.txt").read_bytes() == b"hello"


def test_certificate_of_another_authority(work: Path, mnt: Path) -> None:
    """A CA bundle that does not hold the signer does not make the certificate good."""
    authority, other = make_authority(work / "ca"), make_authority(work / "other", "somebody else")
    with scripted(ScriptedBucket(BUCKET), authority.server) as server:
        arguments = [*at(server.url, mnt), "--ca-bundle", str(other.bundle)]
        line = refusal(mnt, ExitCode.ENDPOINT, *arguments, within_s=WITHIN_S)
    assert "certificate is not trusted" in line


@contextlib.contextmanager
def _black_hole() -> Iterator[str]:
    """A URL whose connections are never accepted: the kernel drops a SYN when the backlog is full."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)  # noqa: FBT003
            filler.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def _greeting(greeting: bytes) -> Iterator[str]:
    """A URL of a server that greets first, as SSH does, and then only listens."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(greeting)
            with contextlib.suppress(OSError):
                while self.request.recv(65536):
                    pass

    class Listener(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Listener(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_address[1]}"
        finally:
            listener.shutdown()
            thread.join()
