"""Random programs on a mount over a bucket in memory, and on a model: the same results, the same tree, nothing lost."""

import tempfile
from pathlib import Path
from typing import Any

import trio
import trio.testing
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.fs.program_run import Run, Step

paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
near = st.sampled_from(["a", "b", "c", "a/a", "a/b"])
handles = st.integers(0, 4)
offsets = st.one_of(st.integers(0, 40), st.sampled_from([4096, 70_000]))
lengths = st.one_of(st.integers(0, 40), st.sampled_from([4096, 70_000]))
seeds = st.integers(0, 255)
booleans = st.booleans()
_big = st.sampled_from([5 << 20, (5 << 20) + 1, 6 << 20])


def _step(name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), *arguments)


_names = st.one_of(
    *[_step(name, paths, paths) for name in ("mkdir", "mkdir", "mkdir", "rmdir", "unlink", "rename", "rename")],
    *[_step(name, near, near) for name in ("rename", "link")],
    *[_step(name, paths, paths) for name in ("rename new", "link", "symlink")],
)
_files = st.one_of(
    *[_step("open", where, st.sampled_from(["r", "w", "rw", "rw", "a"]), booleans, booleans, booleans)
      for where in (paths, near, near)],
    *[_step("save", where, seeds, lengths) for where in (paths, near)],
    _step("truncate", near, offsets), _step("chmod", near, st.sampled_from([0o600, 0o755])), _step("stat", paths),
)  # fmt: skip
_content = st.one_of(
    *[_step("read", handles, offsets, lengths)] * 2, *[_step("write", handles, offsets, seeds, lengths)] * 4,
    _step("ftruncate", handles, offsets), _step("fstat", handles), _step("fsync", handles), _step("flush", handles),
    *[_step("close", handles)] * 2,
)  # fmt: skip
_beside = st.one_of(
    _step("wait", st.sampled_from([0.05, 0.3, 3.0, 70.0])), _step("look"), _step("sync"), _step("kill"),
    *[_step("killed", st.integers(1, 4), st.sampled_from(["request", "answer"]), st.just(name), where, where)
      for name in ("rename", "rename", "rename new", "mkdir", "rmdir", "unlink", "symlink", "link")
      for where in (paths, near)],
    *[_step("wait", st.sampled_from([0.05, 0.3, 3.0]))] * 8,
)  # fmt: skip
_rarely = st.one_of(
    _step("remount"), _step("save", near, seeds, _big), _step("write", handles, offsets, seeds, _big),
    _step("write", handles, _big, seeds, lengths), _step("ftruncate", handles, _big), _step("truncate", near, _big),
)  # fmt: skip
_kinds = [_names] * 12 + [_files] * 12 + [_content] * 16 + [_beside] * 6 + [_rarely]
steps = st.integers(0, len(_kinds) - 1).flatmap(_kinds.__getitem__)
START: list[Step] = [("mkdir", "a", "a"), ("mkdir", "c", "c"), ("save", "a/b", 1, 20), ("save", "b", 2, 30)]


def programs(length: int) -> st.SearchStrategy[list[Step]]:
    """Programs of up to so many steps, on a tree that has something in it."""
    return st.lists(steps, min_size=length // 2, max_size=length).map(lambda program: START + program)


#: How a server may be that is none of Amazon's, or far away.
servers = st.fixed_dictionaries({"keeps_directories": booleans, "late_s": st.sampled_from([0.0, 0.0, 0.06, 0.15])})


def run_program(program: list[Step], **server: Any) -> int:
    """Returns its steps; raises AssertionError.

    Args:
        server: as of `Run`.
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        run = Run(Path(directory), **server)
        trio.run(run.run, program, clock=trio.testing.MockClock(autojump_threshold=0))
        return run.steps


def test_programs_do_not_differ() -> None:
    """Whatever programs do to names, results and tree are those of a local file system, here and in the next mount."""
    n_steps = 0

    @settings(max_examples=130, derandomize=True, report_multiple_bugs=False, phases=[Phase.generate])
    @given(programs(120), servers)
    def run(program: list[Step], server: dict[str, Any]) -> None:
        nonlocal n_steps
        n_steps += run_program(program, **server)

    run()
    assert n_steps >= 10_000


@settings(max_examples=40, deadline=None, derandomize=True, phases=[Phase.generate])
@given(programs(60))
def test_a_bucket_that_renames(program: list[Step]) -> None:
    """So it is on a bucket that renames objects; but a kill in the middle of a rename leaves both directories there."""
    run_program([step for step in program if step[0] != "killed"], is_moving=True)
