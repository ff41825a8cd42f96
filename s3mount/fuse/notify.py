"""Kernel invalidation: the one place that may call it, and never on trio's thread.

Why a thread.  A notification is a write(2) to the FUSE device that takes locks of the kernel.
`invalidate_entry` takes the parent directory's, which a lookup or readdir in that directory holds
until it is answered.  The answer comes from the loop: on the loop such a call waits for itself, in
state D, and the whole mount with it.  In this thread it waits for as long as S3 takes, and the
loop goes on.

Why attributes only.  `invalidate_inode` with the data waits for the lock of each page, and a page
of a read that is not answered is locked.  In a thread that is safe for the loop, but not for the
process: with a thread in state D, kill -9 leaves a zombie that keeps the device open, so nobody
ever fails the read, and mount and readers hang until `umount -f` (measured).  Nor is it needed: a new
version is a new inode, and of one without an ETag the kernel itself drops the pages when the new
attributes show another size or time (measured).  The attributes alone take no lock that lasts.

What waiting costs (measured).  One thread sends in order, so what is behind a stuck call waits
as well; names that nobody misses go by another (`fuse.letting_go`).  While `forget_name` waits for
its directory, NEW lookups in it queue behind in the kernel; cached names and all other directories
do not.  A process that is killed or stopped then is the zombie above, until `umount -f`.  To answer
the calls in flight is not enough, because a lookup that is still in the kernel's queue holds the
directory, too: whoever stops a mount closes this first, and aborts the connection when that fails.

What losing one costs: the kernel uses the name or the attributes until their TTL is over.

The thread starts with the first notification, so that nothing is running when the process forks
into the background.  It is a daemon thread: the interpreter does not wait for it at exit.

INVARIANT: every notification asked for is merged, dropped, pending, in hand, or done; done is
sent, unknown to the kernel, or failed.
"""

import errno
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import pyfuse3
import trio
from pyfuse3 import FileNameT, InodeT

from s3mount.fuse.letting_go import LettingGo

log = logging.getLogger(__name__)

#: What a refresh of everything asks for at once; 250 bytes each, 200,000 a second (measured).
_MAX_PENDING = 100_000
#: What may still wait when whoever has many goes on: where memory is short, notes must not take 25 MB.
_FEW = 10_000
#: Seconds that `close` gives the call in hand; one that is not stuck takes microseconds.
_PATIENCE_S = 0.5
#: Seconds that whoever has many to send waits for the others to go.
_ROOM_S = 5.0
#: The kernel never heard of it, or forgot it already; and a parent that is no directory.
_UNKNOWN = frozenset({errno.ENOENT, errno.ENOTDIR})

#: A name in the directory with a number, or with None the inode of that number.
_Notification = tuple[int, bytes | None]


@dataclass(frozen=True)
class NotifierStatistics:
    """Notifications since the start, and those not sent yet.

    Attributes:
        sent: the kernel took them.
        unknown: the kernel had nothing to forget.
        failed: the kernel refused; a mount that is gone, mostly.
        merged: the same one was pending already.
        dropped: lost, because too many were pending or the mount ended.
        pending, in_hand: waiting for the thread, and being sent by it (0 or 1).
    """

    sent: int
    unknown: int
    failed: int
    merged: int
    dropped: int
    pending: int
    in_hand: int


class ThreadNotifier:
    """Carries notes to the kernel in a thread; implements `fs.notifier.KernelNotifier`.

    Args:
        max_pending: notifications that may wait; more are dropped.
    """

    def __init__(self, max_pending: int = _MAX_PENDING) -> None:
        self._max_pending = max_pending
        self._changed = threading.Condition()
        # What follows is guarded by the condition, which nobody holds during a call into the kernel.
        self._pending: OrderedDict[_Notification, None] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._in_hand = 0
        self._is_overflowing = False
        self._is_closed = False
        self._worker: threading.Thread | None = None
        self._letting_go = LettingGo(_send)

    def forget_name(self, parent_ino: int, name: bytes) -> None:
        """The kernel must ask for this name again, whether it knows it as present or as absent."""
        self._add((parent_ino, name))

    def forget_inode(self, ino: int) -> None:
        """The kernel must ask for the attributes of an inode again; it keeps the pages."""
        self._add((ino, None))

    async def room(self) -> None:
        """Until there is room for many more; not for long when the thread is stuck."""
        if len(self._pending) > min(self._max_pending // 2, _FEW):
            await trio.to_thread.run_sync(self._wait_for_room)

    async def let_go(self, names: Sequence[tuple[int, bytes]]) -> int:
        """The kernel need not remember names that nothing has any more (fuse.letting_go)."""
        return await self._letting_go.let_go(names)

    def _wait_for_room(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._pending) <= min(self._max_pending // 2, _FEW), _ROOM_S)

    def _add(self, notification: _Notification) -> None:
        with self._changed:
            self._counts["asked"] += 1
            if notification in self._pending:
                self._counts["merged"] += 1
            elif self._is_closed or not self._has_room():
                self._counts["dropped"] += 1
            else:
                self._pending[notification] = None
                self._start()
                self._changed.notify()

    def _has_room(self) -> bool:
        has_room = len(self._pending) < self._max_pending
        if not has_room and not self._is_overflowing:
            self._is_overflowing = True
            log.warning(
                "%d notifications wait for the kernel, more are dropped: until its TTL is over "
                "it may show what has changed", len(self._pending),
            )  # fmt: skip
        return has_room

    def _start(self) -> None:
        if self._worker is not None:
            return
        worker = threading.Thread(target=self._work, name="kernel-notifier", daemon=True)
        try:
            worker.start()
        except RuntimeError as error:  # the process may have no more threads; the next notification tries again
            log.warning("the kernel is not notified of changes now: %s", error)
            return
        self._worker = worker

    # -- in the thread ----------------------------------------------------------------------

    def _work(self) -> None:
        while (notification := self._take()) is not None:
            outcome = _send(notification)
            with self._changed:
                self._counts[outcome] += 1
                self._in_hand = 0

    def _take(self) -> _Notification | None:
        """The oldest, out of the pending ones: asked for again from now on it is sent again."""
        with self._changed:
            while not self._pending and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                return None
            self._in_hand = 1
            oldest, _ = self._pending.popitem(last=False)
            self._changed.notify_all()
            self._is_overflowing = self._is_overflowing and bool(self._pending)
            return oldest

    # -- the end ----------------------------------------------------------------------------

    def close(self) -> bool:
        """Send nothing more; call it while the mount is served, and before it is detached.

        Blocks for a moment at most: a call that is stuck in the kernel is left to itself.

        Returns:
            Whether no thread is in the kernel.  If not, the process can end only after the connection was
            aborted: umount2(2) with MNT_FORCE, or /sys/fs/fuse/connections.
        """
        with self._changed:
            self._is_closed = True
            self._counts["dropped"] += len(self._pending)
            self._pending.clear()
            self._changed.notify()
        until = time.perf_counter() + _PATIENCE_S
        is_gone = self._letting_go.close(_PATIENCE_S)
        if self._worker is not None:
            self._worker.join(max(0.0, until - time.perf_counter()))
            is_gone = is_gone and not self._worker.is_alive()
        if not is_gone:
            log.warning("a notification is stuck in the kernel; if this process does not end: umount -f")
        return is_gone

    def statistics(self) -> NotifierStatistics:
        """A snapshot of the counters."""
        with self._changed:
            count = self._counts + self._letting_go.counts()
            return NotifierStatistics(
                sent=count["sent"], unknown=count["unknown"], failed=count["failed"], merged=count["merged"],
                dropped=count["dropped"], pending=len(self._pending), in_hand=self._in_hand,
            )  # fmt: skip

    def check_invariants(self) -> None:
        """Raises ValueError when a notification is lost without a trace, or too many wait."""
        with self._changed:
            count = self._counts
            done = count["sent"] + count["unknown"] + count["failed"] + count["merged"] + count["dropped"]
            if count["asked"] != done + len(self._pending) + self._in_hand:
                raise ValueError(f"of {count['asked']} notifications, {done} have ended and not all others wait")
            if len(self._pending) > self._max_pending:
                raise ValueError(f"{len(self._pending)} notifications wait")


def _send(notification: _Notification) -> str:
    """Call into the kernel, for as long as it takes; returns what to count."""
    number, name = notification
    try:
        if name is None:
            pyfuse3.invalidate_inode(InodeT(number), attr_only=True)
        else:
            pyfuse3.invalidate_entry(InodeT(number), FileNameT(name))
    except OSError as error:
        if error.errno in _UNKNOWN:
            return "unknown"
        log.debug("the kernel did not take a notification (inode %d, name %r): %s", number, name, error.strerror)
        return "failed"
    return "sent"
