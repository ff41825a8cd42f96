"""A daemon that may not mount, in a mount namespace of its own, and the service that mounts for it outside."""

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3mount.fuse.mountservice import ADDRESS
from s3mount.mounter import privileged
from tests.support.mounts import COMMAND, aws_environment, clean_up, is_mounted
from tests.support.namespaces import NOBODY, in_namespace
from tests.support.processes import running, wait_until
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

#: What the unit takes from the daemon; it may read what root may, because the program under test can lie where only
#: root can look.
CONFINED = [
    *("unshare", "--mount", "--propagation", "slave"),
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--bounding-set=-all,+dac_read_search"),
]
SERVE = """
import sys
from pathlib import Path
from s3mount.mounter.privileged import serve
from s3mount.mounter.sdnotify import ServiceManager
serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], ServiceManager(None))
"""


def serving(work: Path, owner: int = NOBODY) -> list[str]:
    """The command of a mount service for `work`/mnt."""
    (work / "mnt").mkdir(exist_ok=True)
    return [sys.executable, "-c", SERVE, str(work / "run" / "mnt.sock"), str(owner), str(work / "mnt")]


@pytest.fixture
def open_work(work: Path) -> Path:
    """A directory that another user can come to."""
    for directory in (work, *work.parents):
        if directory.stat().st_uid == os.geteuid() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o055)
    return work


def test_the_mount_is_visible_outside(weed: Server, open_work: Path) -> None:
    """A confined daemon's mount is seen and read by programs outside, survives its daemon, and is gone at the stop."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="a", Body=b"one")
    weed.client.put_object(Bucket=bucket, Key="b", Body=b"two")
    work, log = open_work, open_work / "log"
    flags = ["--foreground", "--allow-other", "--endpoint-url", weed.url, "--force-path-style"]
    confined = shlex.join([*CONFINED, COMMAND, bucket, str(work / "mnt"), *flags])
    script = f"""
        mount --make-rshared /
        {shlex.join(serving(work))} 2>{work}/service.log & service=$!
        trap 'kill $service $daemon 2>/dev/null || true; umount -l {work}/mnt 2>/dev/null || true' EXIT
        until [ -S {work}/run/mnt.sock ]; do sleep 0.05; done
        {ADDRESS}={work}/run/mnt.sock RUNTIME_DIRECTORY={work}/own {confined} >{log} 2>&1 & daemon=$!
        until grep -q 'mounted s3://' {log}; do kill -0 $daemon; sleep 0.05; done
        findmnt --noheadings --output OPTIONS --type fuse.s3mount {work}/mnt
        cat {work}/mnt/a
        kill -KILL $(pgrep --parent $daemon --full foreground)
        cat {work}/mnt/b
        kill $daemon
        wait $daemon
        ! findmnt {work}/mnt
        """
    (work / "own").mkdir(mode=0o700)
    os.chown(work / "own", NOBODY, NOBODY)
    result = in_namespace(script, aws_environment())
    told = log.read_text(encoding="utf-8") if log.exists() else ""
    assert result.returncode == 0, (result.stderr, told)
    options, content = result.stdout.split("\n")
    assert content == "onetwo"
    assert {"nosuid", "nodev", f"user_id={NOBODY}"} <= set(options.split(","))
    assert "serves the mount" in told


class Client:
    """Who asks the service as the daemon does."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def ask(self, request: object) -> tuple[dict[str, object], list[int]]:
        """The answer, and what came with it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(self._path)
            sock.send(json.dumps(request).encode())
            packet, descriptors, _, _ = socket.recv_fds(sock, 1 << 16, 1)
            return json.loads(packet), list(descriptors)


@pytest.fixture
def client(work: Path) -> Iterator[Client]:
    """One that may ask a service which runs."""
    path = work / "run" / "mnt.sock"
    with running(serving(work, os.getuid()), work / "service.log"):
        wait_until(path.is_socket, 30, "the service")
        yield Client(path)
        clean_up(work / "mnt")


REFUSED = [
    *({"verb": "mount", "options": [option]} for option in ("suid", "dev", "fd=7", "user_id=0", "fsname=x,suid")),
    {"verb": "mount", "options": "ro"},
    {"verb": "remount"},
    {"verb": ["mount"]},
    {"options": []},
    ["mount"],
    7,
]


def test_what_the_service_refuses(client: Client, work: Path) -> None:
    """The mount service mounts nothing for an option that gives more than data, or what is no request, and goes on."""
    for request in REFUSED:
        answer, descriptors = client.ask(request)
        assert "message" in answer, request
        assert descriptors == []
        assert not is_mounted(work / "mnt")
    answer, descriptors = client.ask({"verb": "mount", "options": ["ro", "fsname=b"]})
    assert (answer, len(descriptors)) == ({}, 1)
    assert is_mounted(work / "mnt")
    os.close(descriptors[0])


def test_only_one_mount_and_only_its_own(client: Client, work: Path) -> None:
    """A second mount is refused while the first has a holder, replaces it when that is dead, and `abort` clears it."""
    ask = {"verb": "mount", "options": ["ro", "fsname=b"]}
    _, (first,) = client.ask(ask)
    answer, _ = client.ask(ask)
    assert "is mounted" in str(answer["message"])
    os.close(first)
    _, (second,) = client.ask(ask)
    assert client.ask({"verb": "abort"}) == ({}, [])
    assert client.ask({"verb": "unmount"}) == ({}, [])
    assert not is_mounted(work / "mnt")
    os.close(second)


def test_other_users_may_not_ask(client: Client, work: Path) -> None:
    """The socket is its owner's alone."""
    found = (work / "run" / "mnt.sock").stat()
    assert (found.st_uid, found.st_mode & 0o777) == (os.getuid(), 0o600)


def test_what_is_left_is_cleared(client: Client, work: Path) -> None:
    """A crash of the service leaves a mount that has a holder alone; a dead one goes, and after a stop any."""
    _, (device,) = client.ask({"verb": "mount", "options": ["ro", "fsname=b"]})
    privileged.clear(str(work / "mnt"), is_over=False)
    assert is_mounted(work / "mnt")
    privileged.clear(str(work / "mnt"), is_over=True)
    assert not is_mounted(work / "mnt")
    os.close(device)
    _, (device,) = client.ask({"verb": "mount", "options": ["ro", "fsname=b"]})
    os.close(device)
    privileged.clear(str(work / "mnt"), is_over=False)
    assert not is_mounted(work / "mnt")


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("", 0o644, "directory ="),
        ('directory = "data"', 0o644, "directory ="),
        ("directory = 7", 0o644, "directory ="),
        ('directory = "/srv/data"', 0o664, "nobody else may write"),
        ("directory =", 0o644, "Invalid value"),
    ],
)
def test_whose_word_counts(work: Path, text: str, mode: int, says: str) -> None:
    """The directory comes from a file that only root may write, as an absolute path, and from nowhere else."""
    config = work / "x.conf"
    config.write_text(text)
    config.chmod(mode)
    with pytest.raises(ValueError, match=says):
        privileged.directory_of(config)


def test_without_the_user() -> None:
    """Where the service's user is missing the mount service ends with one line that says how to make it."""
    code = "from s3mount.mounter.privileged import main; main()"
    command = [sys.executable, "-c", code, "serve", "data", "--user", "no-such-user"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.splitlines() == [
        "s3mount-mount: there is no user no-such-user: make install-service makes it, and so does systemd-sysusers"
    ]


def test_the_directory_is_found_without_its_links(work: Path) -> None:
    """Links on the way are resolved, as the mount table has it; what is there itself is not touched."""
    (work / "real").mkdir()
    (work / "link").symlink_to(work / "real")
    config = work / "x.conf"
    config.write_text(f'bucket = "b"\ndirectory = "{work}/link/../link/mnt/"\n')
    config.chmod(0o644)
    assert privileged.directory_of(config) == str(work / "real" / "mnt")
