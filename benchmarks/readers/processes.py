"""Reader processes that start together, and what they report.

The clock starts when every process is ready (imports, clients and connections are not reading) and
stops when the last one is done.
"""

import contextlib
import json
import time
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from threading import BrokenBarrierError

Figures = dict[str, float]
_PATIENCE_S = 900


def read_in_processes(n: int, make_reader: Callable[[int], Callable[[], Figures]]) -> Figures:
    """`n` forked processes; what each figure of their readers sums up to.

    Args:
        make_reader: called in process `index` before the clock starts; what it returns is timed.

    Returns:
        With `seconds` of all together, `cpu_s` of the processes and `rss_mib`, the largest sum of their peaks.

    Raises:
        RuntimeError: a reader failed.
    """
    context = get_context("fork")
    are_ready, answers = context.Barrier(n + 1), context.Queue()

    def run(index: int) -> None:
        try:
            read = make_reader(index)
            are_ready.wait(_PATIENCE_S)
            cpu_s = time.process_time()
            figures = read()
            figures["cpu_s"] = time.process_time() - cpu_s
            figures["rss_mib"] = peak_rss_mib()
            answers.put((figures, ""))
        except BaseException:  # the parent waits for an answer, whatever happened
            answers.put(({}, traceback.format_exc()))
            are_ready.abort()
            raise

    processes = [context.Process(target=run, args=(index,)) for index in range(n)]
    for process in processes:
        process.start()
    with contextlib.suppress(BrokenBarrierError):  # the reader that broke it says why
        are_ready.wait(_PATIENCE_S)
    started = time.perf_counter()
    total: Figures = {}
    for _ in processes:
        figures, failure = answers.get(timeout=_PATIENCE_S)
        if failure:
            raise RuntimeError(failure)
        for name, value in figures.items():
            total[name] = total.get(name, 0) + value
    total["seconds"] = time.perf_counter() - started
    for process in processes:
        process.join()
    return total


def peak_rss_mib() -> float:
    """Of this process since its exec or fork; what getrusage says may be an ancestor's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def report(figures: Figures) -> None:
    """Print them for the program that started this one."""
    print(json.dumps(figures), flush=True)
