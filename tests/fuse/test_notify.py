"""The notifier's thread against a kernel that the tests play; what a real one does is in tests/mount."""

import errno
import inspect
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyfuse3
import pytest
import trio
import trio.testing

from s3mount.fs.notifier import KernelNotifier, NoNotifier
from s3mount.fuse.notify import NotifierStatistics, ThreadNotifier

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30


class Kernel:
    """Takes notifications, and answers when the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.errors: dict[object, int] = {}
        self.threads: set[int] = set()
        self._taken: queue.SimpleQueue[object] = queue.SimpleQueue()

    def invalidate_entry(self, parent: int, name: bytes) -> None:
        self._take((parent, name))

    def invalidate_inode(self, ino: int, attr_only: bool = False) -> None:  # noqa: FBT001, FBT002  pyfuse3's
        self._take(ino if attr_only else "data, too")

    def _take(self, call: object) -> None:
        self.threads.add(threading.get_ident())
        self._taken.put(call)
        assert self.gate.wait(PATIENCE_S)
        if call in self.errors:
            raise OSError(self.errors[call], os.strerror(self.errors[call]))

    def taken(self, n_calls: int) -> list[object]:
        """The next calls, waiting for them."""
        return [self._taken.get(timeout=PATIENCE_S) for _ in range(n_calls)]

    def is_at_rest(self) -> bool:
        return self._taken.empty()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    played = Kernel()
    monkeypatch.setattr(pyfuse3, "invalidate_entry", played.invalidate_entry)
    monkeypatch.setattr(pyfuse3, "invalidate_inode", played.invalidate_inode)
    yield played
    played.gate.set()


def counts(**expected: int) -> NotifierStatistics:
    """Statistics that are zero but for these."""
    names = ("sent", "unknown", "failed", "merged", "dropped", "pending", "in_hand")
    return NotifierStatistics(**{name: expected.get(name, 0) for name in names})


def closed(notifier: ThreadNotifier) -> NotifierStatistics:
    """The counts when the thread has ended."""
    assert notifier.close()
    notifier.check_invariants()
    return notifier.statistics()


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kernel-notifier"]


def test_notes_reach_the_kernel_in_order_and_in_another_thread(kernel: Kernel) -> None:
    """Names and inodes are sent in the order of the calls, of inodes the attributes only, by one thread of its own."""
    notifier = ThreadNotifier()
    notifier.forget_name(1, b"a")
    notifier.forget_inode(7)
    notifier.forget_name(2, b"a")
    assert kernel.taken(3) == [(1, b"a"), 7, (2, b"a")]
    assert closed(notifier) == counts(sent=3)
    assert len(kernel.threads) == 1
    assert threading.get_ident() not in kernel.threads


def test_a_stuck_kernel_does_not_stop_the_caller(kernel: Kernel) -> None:
    """While one call hangs in the kernel, every further one returns, and is sent when that one is over."""
    kernel.gate.clear()
    notifier = ThreadNotifier()
    notifier.forget_name(1, b"a")
    assert kernel.taken(1) == [(1, b"a")]
    notifier.forget_inode(2)
    notifier.forget_inode(3)
    assert notifier.statistics() == counts(in_hand=1, pending=2)
    notifier.check_invariants()
    kernel.gate.set()
    assert kernel.taken(2) == [2, 3]
    assert closed(notifier) == counts(sent=3)


def test_what_is_pending_is_not_sent_twice(kernel: Kernel) -> None:
    """A note is merged with the same one that is pending; not with the one in hand, which may be too old by then."""
    kernel.gate.clear()
    notifier = ThreadNotifier()
    notifier.forget_name(1, b"a")
    assert kernel.taken(1) == [(1, b"a")]
    for _ in range(3):
        notifier.forget_name(1, b"a")
        notifier.forget_inode(1)
    assert notifier.statistics() == counts(in_hand=1, pending=2, merged=4)
    kernel.gate.set()
    assert kernel.taken(2) == [(1, b"a"), 1]
    assert closed(notifier) == counts(sent=3, merged=4)


def test_too_many_are_dropped_with_one_warning_for_each_burst(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    """What does not fit is counted; the log says once that the kernel may be behind, and again at the next burst."""
    notifier = ThreadNotifier(max_pending=2)
    for burst in range(1, 3):
        kernel.gate.clear()
        notifier.forget_inode(1)
        assert kernel.taken(1) == [1]
        for ino in range(2, 7):
            notifier.forget_inode(ino)
        notifier.forget_inode(2)
        assert (notifier.statistics().pending, notifier.statistics().dropped) == (2, 3 * burst)
        assert [record.levelno for record in caplog.records] == [logging.WARNING] * burst
        assert "until its TTL is over" in caplog.text
        kernel.gate.set()
        assert kernel.taken(2) == [2, 3]
    assert closed(notifier) == counts(sent=6, merged=2, dropped=6)


def test_what_the_kernel_does_not_know_is_normal(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    """ENOENT and ENOTDIR are counted as unknown, other errors as failed; nothing of it is loud or ends the thread."""
    kernel.errors = {1: errno.ENOENT, 2: errno.ENOTDIR, 3: errno.ENODEV}
    notifier = ThreadNotifier()
    for ino in range(1, 5):
        notifier.forget_inode(ino)
    assert kernel.taken(4) == [1, 2, 3, 4]
    assert closed(notifier) == counts(sent=1, unknown=2, failed=1)
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_without_a_mount_nothing_is_raised() -> None:
    """The real pyfuse3 without a session refuses, and that is a failed notification and no more."""
    notifier = ThreadNotifier()
    notifier.forget_name(1, b"a")
    notifier.forget_inode(1)
    notifier.close()
    end = notifier.statistics()
    assert end.failed + end.dropped == 2
    notifier.check_invariants()


def test_the_thread_starts_with_the_first_note(kernel: Kernel) -> None:
    """No thread exists before there is something to send, so that the process may fork; closing ends it."""
    notifier = ThreadNotifier()
    assert workers() == []
    notifier.forget_inode(1)
    assert [worker.daemon for worker in workers()] == [True]
    kernel.taken(1)
    notifier.close()
    assert workers() == []


def test_a_process_without_another_thread_goes_on(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When no thread can be started the caller notices nothing, and the next note tries again."""
    notifier = ThreadNotifier()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        notifier.forget_inode(1)
    assert "can't start new thread" in caplog.text
    assert kernel.is_at_rest()
    notifier.forget_inode(2)
    assert kernel.taken(2) == [1, 2]
    assert closed(notifier) == counts(sent=2)


def test_closing_drops_what_is_pending(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    """Closing does not wait for a call that is stuck, and tells; what was pending or comes later is dropped."""
    kernel.gate.clear()
    notifier = ThreadNotifier()
    notifier.forget_inode(1)
    kernel.taken(1)
    notifier.forget_inode(2)
    assert not notifier.close()
    notifier.check_invariants()
    assert notifier.statistics() == counts(in_hand=1, dropped=1)
    assert "umount -f" in caplog.text
    notifier.forget_name(1, b"late")
    assert notifier.statistics() == counts(in_hand=1, dropped=2)
    kernel.gate.set()
    assert closed(notifier) == counts(sent=1, dropped=2)
    assert kernel.is_at_rest()


def test_closing_twice_or_unused_is_nothing() -> None:
    """A notifier that was never used starts no thread to be closed, and may be closed again."""
    notifier = ThreadNotifier()
    assert notifier.close()
    assert closed(notifier) == counts()
    notifier.forget_inode(1)
    assert closed(notifier) == counts(dropped=1)
    assert workers() == []


def test_a_stuck_call_does_not_keep_the_interpreter() -> None:
    """A Python that ends does not wait for the thread."""
    program = (
        "import pyfuse3, threading\n"
        "from s3mount.fuse.notify import ThreadNotifier\n"
        "taken = threading.Event()\n"
        "pyfuse3.invalidate_inode = lambda *_, **__: (taken.set(), threading.Event().wait())\n"
        "ThreadNotifier().forget_inode(1)\n"
        "taken.wait()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=60, cwd=ROOT)
    assert ended.returncode == 0


@pytest.mark.parametrize("implementation", [NoNotifier, ThreadNotifier])
@pytest.mark.parametrize("note", ["forget_name", "forget_inode"])
def test_notifiers_are_what_the_file_system_expects(implementation: type, note: str) -> None:
    """Each implementation takes the notes that the file system's protocol names, with the same arguments."""
    expected = inspect.signature(getattr(KernelNotifier, note))
    assert inspect.signature(getattr(implementation, note)) == expected


# -- the lint rule ----------------------------------------------------------------------------

BANNED = ("invalidate_inode", "invalidate_entry", "invalidate_entry_async", "notify_store")


def rules_broken(source: str, path: str) -> set[str]:
    """What ruff with the project's rules finds in a source under that path."""
    command = [sys.executable, "-m", "ruff", "check", "--config", "pyproject.toml", "--output-format", "concise"]
    command += ["--no-cache", "--select", "TID251", "--stdin-filename", path, "-"]
    found = subprocess.run(command, input=source, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1), found.stderr
    return {name for line in found.stdout.splitlines() for name in BANNED if f"`pyfuse3.{name}`" in line}


@pytest.mark.parametrize("path", ["s3mount/fuse/operations.py", "s3mount/fs/filesystem.py", "tests/mount/driver.py"])
def test_nobody_else_may_call_into_the_kernel(path: str) -> None:
    """ruff refuses every call that can hang the mount, however it is imported, in any other file."""
    by_module = "import pyfuse3\n" + "".join(f"pyfuse3.{name}(1)\n" for name in BANNED)
    by_name = f"from pyfuse3 import {', '.join(BANNED)}\n" + "".join(f"{name}(1)\n" for name in BANNED)
    assert rules_broken(by_module, path) == set(BANNED)
    assert rules_broken(by_name, path) == set(BANNED)


def test_the_one_place_may() -> None:
    """fuse/notify.py is the one file of the package that the rule lets call, and it does."""
    by_module = "import pyfuse3\n" + "".join(f"pyfuse3.{name}(1)\n" for name in BANNED)
    assert rules_broken(by_module, "s3mount/fuse/notify.py") == set()
    callers = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "s3mount").rglob("*.py")
        if any(f"pyfuse3.{name}(" in path.read_text(encoding="utf-8") for name in BANNED)
    }
    assert callers == {"s3mount/fuse/notify.py"}


async def test_room_is_waited_for(kernel: Kernel) -> None:
    """Who leaves many notes can wait until half of the room is free, and loses none."""
    kernel.gate.clear()
    notifier = ThreadNotifier(max_pending=10)
    for number in range(10):
        notifier.forget_inode(number)
    kernel.taken(1)
    has_room = trio.Event()

    async def wait() -> None:
        await notifier.room()
        has_room.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not has_room.is_set()
        kernel.gate.set()
        await has_room.wait()
    assert notifier.statistics().pending <= 5
    assert notifier.statistics().dropped == 0
    assert notifier.close()
