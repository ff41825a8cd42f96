"""What the daemon is doing, for whoever looks at one that hangs: SIGUSR1 writes it to the log.

Two answers, because a loop that is stuck cannot speak for itself:

* The loop, if it lives: the counters of all parts, and where each of its tasks waits.
* The interpreter's own handler, in any case: where each thread is, even in a loop without an end or a call into C that
  does not return.  It writes to a descriptor and needs neither lock nor memory, so nothing of Python's logging.

The same handler writes the stack of a crash in C code.  Where the log is no file (syslog) it writes into a pipe that a
thread carries to the log: what a dying process says last is lost there.
"""

import faulthandler
import logging
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import trio

from s3mount.units import counted

log = logging.getLogger(__name__)

SIGNAL = signal.SIGUSR1
#: How trio waits is the same everywhere.
_TRIO = str(Path(trio.__file__).parent)


@contextmanager
def dumped(descriptor: int | None) -> Iterator[AsyncIterator[int]]:
    """Threads are dumped inside the block; what is yielded is for `report`.

    Args:
        descriptor: of the log; None where it has none.
    """
    with (
        trio.open_signal_receiver(SIGNAL) as signals,
        _carried_to_log() if descriptor is None else nullcontext(descriptor) as target,
    ):
        faulthandler.enable(target)
        faulthandler.register(SIGNAL, target, all_threads=True, chain=True)  # the chain is trio's receiver
        try:
            yield signals
        finally:
            faulthandler.unregister(SIGNAL)
            faulthandler.disable()


async def report(signals: AsyncIterator[int], statistics: Mapping[str, Callable[[], object]]) -> None:
    """At each signal: what every part counts, and where every task waits."""
    async for _ in signals:
        for part, count in statistics.items():
            log.info("%s: %s", part, count())
        for stack, n_tasks in task_stacks().most_common():
            log.info("%s: %s", counted(n_tasks, "task"), stack)


def task_stacks() -> Counter[str]:
    """How many tasks wait at the same place: a task's name without its number, its frames, the outermost first."""
    stacks: Counter[str] = Counter()
    root = trio.lowlevel.current_root_task()
    waiting = [] if root is None else [root]
    while waiting:
        task = waiting.pop()
        waiting += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        places = [
            f"{Path(frame.f_code.co_filename).name}:{line} {frame.f_code.co_name}"
            for frame, line in task.iter_await_frames()
            if not frame.f_code.co_filename.startswith(_TRIO)
        ]
        stacks[" > ".join([re.sub(r"-[0-9]+$", "", task.name), *places])] += 1
    return stacks


@contextmanager
def _carried_to_log() -> Iterator[int]:
    reader, writer = os.pipe()
    with closing(os.fdopen(reader, encoding="utf-8", errors="replace")) as lines:
        carrier = threading.Thread(target=_carry, args=(lines,), name="stack-dumps", daemon=True)
        carrier.start()
        try:
            yield writer
        finally:
            os.close(writer)
            carrier.join()


def _carry(lines: Iterator[str]) -> None:
    for line in lines:
        log.info("%s", line.rstrip())
