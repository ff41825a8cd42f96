"""Real control groups: one with a limit on memory, of v1 or v2, and one that is killed as a whole; they need root."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[tuple[str, ...]]:
    """A group while the block runs; yields the beginning of a command line whose rest runs in it."""
    name = f"s3mount-test-{os.getpid()}"
    if (_V1 / "memory.limit_in_bytes").exists():
        group, limit = _V1 / name, "memory.limit_in_bytes"
    else:
        (_V2 / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
        group, limit = _V2 / name, "memory.max"
    group.mkdir()
    try:
        (group / limit).write_text(str(limit_bytes), encoding="ascii")
        yield "sh", "-c", f'echo $$ > {group / "cgroup.procs"} && exec "$@"', "sh"
    finally:
        _remove(group)


@contextlib.contextmanager
def killable_group() -> Iterator[tuple[Path, tuple[str, ...]]]:
    """A group of v2 while the block runs, and the beginning of a command line whose rest runs in a group below it.

    Whoever writes 1 to its `cgroup.kill` kills both at once.
    """
    root = _V2 / "unified" if (_V2 / "unified").is_dir() else _V2
    job = root / f"s3mount-job-{os.getpid()}"
    step = job / "step"
    step.mkdir(parents=True)
    try:
        yield job, ("sh", "-c", f'echo $$ > {step / "cgroup.procs"} && exec "$@"', "sh")
    finally:
        (job / "cgroup.kill").write_text("1", encoding="ascii")
        _remove(step)
        _remove(job)


def _remove(group: Path) -> None:
    """Its last process may have ended a moment ago."""
    deadline = time.perf_counter() + 10
    while True:
        try:
            group.rmdir()
            return
        except OSError:
            if time.perf_counter() > deadline:
                raise
        time.sleep(0.05)  # noqa: TID251  the kernel
