"""Programs on two sides at once: every call gives the same, and S3 has what was closed.

A program is a list of steps, each the name of a call and its arguments; a failure prints what can be run again:

    python -m tests.mount.twins '[("save", "a", (0, 10)), ...]'
"""

import ast
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from s3mount.core.symlinks import link_key
from tests.mount.sides import Local, Side
from tests.support.content import make_content
from tests.support.mounts import Mount, aws_environment, mounted
from tests.support.processes import wait_until
from tests.support.servers import Server, seaweedfs
from tests.support.takeover import served_by, wait_for_takeover

Step = tuple[Any, ...]
Program = list[Step]
#: What another S3 client finds below a prefix: content by key, from the program's directory on.
Objects = Callable[[str], dict[str, bytes]]

_CONTENT = make_content("twins", (8 << 20) + 256)
#: What is appended to an object is in S3 a second after the last close; here the machine may be busy.
_LATE_S = 20
#: After daemons that died sooner the mounter waits longer and longer.
_SERVED_S = 1.1
#: Calls whose first argument is a descriptor.
_ON_HANDLES = frozenset({
    "dup", "close", "read", "pread", "write", "pwrite", "seek", "ftruncate", "allocate", "fsync", "fdatasync",
    "fstat", "list_handle", "send_file", "copy_range", "is_same", "map_read", "map_write", "map_and_close",
    "child_writes", "child_starts", "futime",
})  # fmt: skip
#: What comes before a call on a descriptor where none is open.
_OPEN_ONE = ("open", "a", os.O_RDWR | os.O_CREAT)
#: Calls with data, whose second argument it is.
_WITH_DATA = frozenset({
    "write", "pwrite", "map_write", "map_and_close", "child_writes", "child_ends", "save", "append",
})  # fmt: skip


def data(seed: int, length: int) -> bytes:
    """Bytes that differ with the seed and from offset to offset."""
    return _CONTENT[seed : seed + length]


def forget(root: Path) -> None:
    """A mount that was ended has forgotten modes and times."""
    for path in root.rglob("*"):
        if not path.is_symlink():
            os.utime(path)
            path.chmod(0o755 if path.is_dir() else 0o644)


class Twins:
    """A mount of a bucket, a local directory, and programs that run on both.

    Args:
        remount: ends the mount and begins it anew; returns when it answers.
        kill: kills the daemon; another one takes over.
        objects: another S3 client; None where there is no S3.
        side: the mount's, another one to test the comparison itself.
    """

    def __init__(
        self,
        local: Path,
        mount: Path,
        remount: Callable[[], None] = lambda: None,
        objects: Objects | None = None,
        side: type[Side] = Side,
        kill: Callable[[], None] = lambda: None,
    ) -> None:
        self._roots = local, mount
        self._kill = kill
        self._remount = remount
        self._objects = objects
        self._side = side
        self._programs = 0
        self.steps = 0

    def run(self, program: Program) -> None:
        """In a new directory on each side; raises AssertionError at the first difference."""
        self._programs += 1
        name = f"p{self._programs}"
        for root in self._roots:
            (root / name).mkdir()
        below, local, mount = self._objects, *(root / name for root in self._roots)
        run = _Run(Local(local), self._side(mount), below and (lambda key: below(f"{name}/{key}")))
        try:
            for step in program:
                self.steps += 1
                if step[0] == "remount":
                    run.close_all()
                    self._remount()
                    forget(local)
                elif step[0] == "killed":
                    self._killed(run, mount, *step[1:])
                    forget(local)
                    run.compare()
                else:
                    run.step(step)
            run.close_all()
            run.compare()
        finally:
            run.let_go()
            for root in (local, mount):
                shutil.rmtree(root, ignore_errors=True)

    def _killed(self, run: "_Run", mount: Path, after_s: float, step: Step) -> None:
        """The daemon is killed a moment after a call began; before, all is closed and in S3, and removals are done.

        What was written to a mapping after the last close comes to S3 when it is unmapped, and nothing waits for that.
        """
        run.close_all()
        run.compare_objects()
        directory = os.open(mount, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        killer = threading.Timer(after_s, self._kill)
        killer.start()
        try:
            run.step(step)
        finally:
            killer.join()


class _Run:
    """One program."""

    def __init__(self, local: Local, mount: Side, objects: Objects | None) -> None:
        self._local = local
        self._mount = mount
        self._objects = objects
        self._late: set[int] = set()  # inodes, of the local side, of what may come to S3 after its close

    def step(self, step: Step) -> None:
        name, *arguments = step
        if name in _ON_HANDLES and not self._local.handles:
            self.step(_OPEN_ONE)
        if name in _ON_HANDLES and not self._local.handles:
            return
        if name == "child_ends" and not self._local.children:
            return
        if name in _WITH_DATA:
            arguments[1] = data(*arguments[1])
        closing = self._look_ahead(name, arguments[0])
        expected, found = self._local.call(name, *arguments), self._mount.call(name, *arguments)
        if found != expected:
            raise AssertionError(f"{step}: {_short(found)} on the mount, {_short(expected)} on the local side")
        if closing is not None:
            self._check_closed(closing)

    def _look_ahead(self, name: str, first: Any) -> int | None:
        """Remember what may be late; returns the local inode of the file that the call may close."""
        if name in ("append", "save"):
            path = self._local.root / first
            inode = path.stat().st_ino if path.exists() else None
            if name == "append" and inode is not None:
                self._late.add(inode)
            return inode if name == "save" else None
        if name not in _ON_HANDLES:
            return None
        descriptor = self._local.handle(first)
        inode = os.fstat(descriptor).st_ino
        if _flags(descriptor) & os.O_APPEND or name in ("map_and_close", "child_starts"):
            self._late.add(inode)
        return inode if name == "close" and _may_write(descriptor) else None

    def _check_closed(self, inode: int) -> None:
        """A file whose last descriptor that may write was closed is in S3 now."""
        if self._objects is None or inode in self._late:
            return
        if any(os.fstat(each).st_ino == inode and _may_write(each) for each in self._local.handles):
            return
        for path in self._local.root.rglob("*"):
            if _is_file(path) and path.stat().st_ino == inode:
                key = path.relative_to(self._local.root).as_posix()
                content = path.read_bytes()
                found = self._objects(key).get(key)
                assert found == content, f"{key} has {_short(found)} in S3 after its close, not {_short(content)}"

    def close_all(self) -> None:
        while self._local.children:
            self.step(("child_ends", 0, (0, 1)))
        while self._local.handles:
            self.step(("close", 0))

    def let_go(self) -> None:
        """Whatever happened, nothing is left open."""
        for side in (self._local, self._mount):
            for handle in side.handles:
                with contextlib.suppress(OSError):
                    os.close(handle)
            for child in side.children:
                child.kill()
                child.communicate()

    def _tree(self) -> dict[str, Path]:
        return {path.relative_to(self._local.root).as_posix(): path for path in self._local.root.rglob("*")}

    def compare(self) -> None:
        """The trees are equal, and S3 has them."""
        real = self._tree()
        self.step(("list", ""))
        for name, path in sorted(real.items()):
            self.step(("lstat", name))
            self.step(("readlink" if path.is_symlink() else "list" if path.is_dir() else "load", name))
        self.compare_objects()

    def compare_objects(self) -> None:
        """S3 has all files, and nothing besides but links and markers: what is deleted, and appended, may be late."""
        if self._objects is None:
            return
        objects, real = self._objects, self._tree()
        files = {name: path.read_bytes() for name, path in real.items() if _is_file(path)}
        links = {link_key(name) for name, path in real.items() if path.is_symlink()}
        others = links | {f"{name}/" for name in real} | {""}
        found: dict[str, bytes] = {}

        def is_equal() -> bool:
            found.clear()
            found.update(objects(""))
            return {key: found.get(key) for key in files} == files and found.keys() <= files.keys() | others

        try:
            wait_until(is_equal, _LATE_S, "the content in S3")
        except TimeoutError:
            wrong = {key: (_short(found.get(key)), _short(content)) for key, content in files.items()}
            more = found.keys() - files.keys() - others
            raise AssertionError(f"S3 and the local side: {wrong}, and S3 has {more}") from None


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _flags(descriptor: int) -> int:
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
    return int(lines.partition("flags:")[2].split()[0], 8)


def _may_write(descriptor: int) -> bool:
    return bool(_flags(descriptor) & (os.O_WRONLY | os.O_RDWR))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:90]} … {text[-90:]} ({len(text)} characters)"


class MountedTwins:
    """Twins over a mount with `--rw` of a new bucket, until the end of the block."""

    def __init__(self, server: Server, directory: Path, *flags: str) -> None:
        self._server = server
        self._bucket = server.make_bucket()
        self._directory = directory
        self._flags = ("--rw", *flags)
        self._stack = contextlib.ExitStack()
        self._remounts = 0
        self._mount: Mount

    def __enter__(self) -> Twins:
        local = self._directory / "local"
        local.mkdir()
        self._begin()
        return Twins(local, self._mount.path, self._remount, self._objects, kill=self._kill)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def mount(self) -> Mount:
        """The mount that answers now."""
        return self._mount

    def _begin(self) -> None:
        environment = aws_environment()
        mount = mounted(self._bucket, self._directory, *self._flags, url=self._server.url, env=environment)
        self._mount = self._stack.enter_context(mount)

    def _remount(self) -> None:
        assert self._mount.stop() == 0, self._mount.log
        self._stack.close()
        self._remounts += 1
        log = self._directory / "s3mount.log"  # that the next mount answers is read in a new one
        log.rename(log.with_suffix(f".{self._remounts}"))
        self._begin()

    def _kill(self) -> None:
        n_before = len(served_by(self._mount))
        os.kill(self._mount.daemon_pid, signal.SIGKILL)
        wait_for_takeover(self._mount, n_before + 1)
        threading.Event().wait(_SERVED_S)  # by the mounter's clock; nothing tells of it

    def _objects(self, prefix: str) -> dict[str, bytes]:
        client, found = self._server.client, {}
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
            for each in page.get("Contents", []):
                with contextlib.suppress(client.exceptions.NoSuchKey):  # it was deleted meanwhile
                    body = client.get_object(Bucket=self._bucket, Key=each["Key"])["Body"].read()
                    found[each["Key"].partition("/")[2]] = body
        return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary).resolve()
        with seaweedfs(work / "weed") as server, MountedTwins(server, work) as twins:
            for argument in sys.argv[1:]:
                twins.run(ast.literal_eval(argument))
                print("no difference:", argument)
