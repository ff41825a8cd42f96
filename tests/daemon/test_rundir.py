"""Where control sockets are, what they are called, and who gets one."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from s3mount.daemon import rundir
from tests.support.namespaces import NOBODY

MOUNT = "/srv/data"


def test_where_runtime_files_are(work: Path) -> None:
    """Root's are in /run/s3mount, whatever is said; another user's where XDG_RUNTIME_DIR says, else in /tmp."""
    environ = {"XDG_RUNTIME_DIR": str(work)}
    assert rundir.candidates(0, environ) == [Path("/run/s3mount")]
    assert rundir.candidates(NOBODY, environ) == [Path(f"/tmp/s3mount-{NOBODY}")]  # not the caller's own: not believed
    script = "from s3mount.daemon import rundir; import os; print(rundir.own_directory(os.environ))"
    os.chmod(work, 0o700)
    os.chown(work, NOBODY, NOBODY)
    for said, expected in ((str(work), work / "s3mount"), ("relative", Path(f"/tmp/s3mount-{NOBODY}"))):
        found = subprocess.run(
            ["setpriv", f"--reuid={NOBODY}", "--clear-groups", "--inh-caps=+dac_read_search",
             "--ambient-caps=+dac_read_search", sys.executable, "-c", script],
            env={**os.environ, "XDG_RUNTIME_DIR": said}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert Path(found.stdout.strip()) == expected


def test_the_small_process_may_import_it() -> None:
    """Importing the module brings in nothing outside the standard library but the package itself."""
    script = (
        "import sys; before = set(sys.modules); from s3mount.daemon import rundir\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) - sys.stdlib_module_names == {"s3mount"}


def test_names_tell_mounts_apart() -> None:
    """Mount points with the same last component, or the same readable part, have different names that fit a socket."""
    points = [MOUNT, "/srv2/data", "/a/" + "x" * 200, "/a/" + "x" * 201, "/b/\udcff \x1b[m", "/b/\udcfe \x1b[m", "/"]
    names = [rundir.name_of(point) for point in points]
    assert len(set(names)) == len(points)
    assert names[0].startswith("data-")
    assert all(name.isascii() and name.isprintable() and "/" not in name and len(name) <= 41 for name in names)


def test_a_socket_is_private(work: Path) -> None:
    """The directory is made 0700 and the socket 0600, whatever the umask says, and close removes the socket."""
    before = os.umask(0)
    try:
        control = rundir.bind(work / "run", MOUNT)
    finally:
        os.umask(before)
    assert stat.S_IMODE((work / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE(control.path.stat().st_mode) == 0o600
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(control.path))
    control.close()
    assert list((work / "run").iterdir()) == []


@pytest.mark.parametrize("what", ["writable", "foreign", "file", "link"])
def test_an_unsafe_directory_is_refused(work: Path, what: str) -> None:
    """A directory that others may write to, of another user, or that is no directory gets no socket."""
    path = work / "run"
    if what == "file":
        path.touch()
    elif what == "link":
        (work / "real").mkdir(mode=0o700)
        path.symlink_to(work / "real")
    else:
        path.mkdir(mode=0o700)
        path.chmod(0o770 if what == "writable" else 0o700)
        os.chown(path, NOBODY if what == "foreign" else -1, -1)
    with pytest.raises(PermissionError, match="mode 0700"):
        rundir.bind(path, MOUNT)


def test_a_stale_socket_is_replaced(work: Path) -> None:
    """A socket that a dead daemon left is replaced; so is a file that is no socket."""
    left = rundir.bind(work, MOUNT)
    left.listener.close()
    again = rundir.bind(work, MOUNT)
    assert rundir.is_answering(again.path)
    left.close()
    assert rundir.is_answering(again.path), "the dead one's end took the living one's name"
    again.close()
    again.path.touch()
    third = rundir.bind(work, MOUNT)
    assert rundir.is_answering(third.path)
    third.close()


def test_a_live_socket_is_left_alone(work: Path) -> None:
    """While a daemon answers for a mount point no other gets its socket, also when many wait to be accepted."""
    first = rundir.bind(work, MOUNT)
    waiting = []
    for _ in range(64):
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)  # noqa: FBT003
        waiting.append(client)
        client.connect_ex(str(first.path))
    with pytest.raises(OSError, match="another s3mount answers there"):
        rundir.bind(work, MOUNT)
    other = rundir.bind(work, MOUNT + "2")
    for sock in (*waiting, first, other):
        sock.close()


def test_sockets_are_found(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount's socket is found by its mount point, all sockets of a user in its directory, and no other file."""
    monkeypatch.setattr(rundir, "_ROOTS", work / "run")
    assert rundir.find(MOUNT, 0, {}) is None
    assert rundir.sockets(0, {}) == []
    controls = [rundir.bind(rundir.own_directory({}), MOUNT + str(number)) for number in range(3)]
    (work / "run/other.sock").touch()
    assert rundir.find(MOUNT + "1", 0, {}) == controls[1].path
    assert rundir.find(MOUNT, 0, {}) is None
    assert rundir.sockets(0, {}) == sorted(control.path for control in controls)
    (work / "run").chmod(0o777)
    assert rundir.find(MOUNT + "1", 0, {}) is None, "others could have put it there"
    for control in controls:
        control.close()


def test_a_path_too_long(work: Path) -> None:
    """A directory whose path leaves no room for a socket's name is refused with that reason."""
    deep = work / ("d" * 100)
    with pytest.raises(OSError, match="too long for the path of a socket"):
        rundir.bind(deep, MOUNT)
