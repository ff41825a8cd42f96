"""Random programs that write, on a mount and on a local directory: equal results, equal content, equal objects."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from s3mount.units import MIB
from tests.mount.sides import Local, Side
from tests.mount.twins import MountedTwins, Program, Twins, forget
from tests.mount.writing_programs import programs, programs_with_kills
from tests.support.servers import Server

#: What CI has time for here, some 1,000 steps; `make writes` goes on.  tests/fs/test_programs.py has 10,000 in memory.
_EXAMPLES = 10
_WITH_KILLS = 1


def between_directories(work: Path, side: type[Side]) -> Twins:
    for name in ("local", "mount"):
        (work / name).mkdir()
    return Twins(work / "local", work / "mount", lambda: forget(work / "mount"), side=side)


def test_directories_do_not_differ(work: Path) -> None:
    """The comparison itself finds nothing where there is nothing: both sides are local directories."""
    twins = between_directories(work, Local)

    @settings(max_examples=60, derandomize=True)
    @given(programs(50))
    def run(program: Program) -> None:
        twins.run(program)

    run()
    assert twins.steps > 1500


def _wrong_size(side: Side, number: int, size: int) -> None:
    os.ftruncate(side.handle(number), size + 1)


def _wrong_place(side: Side, number: int, data: bytes, offset: int) -> int:
    return os.pwrite(side.handle(number), data, offset + 1)


def _wrong_error(side: Side, path: str) -> None:
    try:
        os.rmdir(side.at(path))
    except OSError as error:
        raise OSError(errno.EIO, "rmdir") from error


def _lost_name(side: Side, _target: str, path: str) -> None:
    os.lstat(os.path.dirname(side.at(path)))


@pytest.mark.parametrize(
    ("call", "wrong"),
    [("ftruncate", _wrong_size), ("pwrite", _wrong_place), ("rmdir", _wrong_error), ("symlink", _lost_name)],
)
def test_a_difference_is_found(work: Path, call: str, wrong: Callable[..., object]) -> None:
    """One call that does something else is found by the same programs."""
    twins = between_directories(work, type("Wrong", (Local,), {call: wrong}))

    @settings(max_examples=300, derandomize=True, phases=[Phase.generate])
    @given(programs(50))
    def run(program: Program) -> None:
        twins.run(program)

    with pytest.raises(AssertionError, match="on the mount"):
        run()


#: Programs that once made a difference, as short as they could be made.
_ONCE_WRONG: tuple[Program, ...] = (
    [("pwrite", 0, (3, 39), 30), ("open", "a", os.O_RDONLY)],
    [("ftruncate", 0, 11_000_000), ("map_and_close", 0, (206, 4097), 20), ("truncate", "a", 4097)],
    [("append", "b", (224, 4097)), ("append", "b", (1, 31)), ("truncate", "b", 70_000)],
    [("save", "a", (1, 10)), ("save", "b", (2, 5000)), ("open", "a", os.O_RDWR), ("rename", "b", "a"),
     ("ftruncate", 0, 4096), ("pread", 0, 4096, 0)],
    [("save", "a", (1, 10)), ("open", "a", os.O_RDWR), ("chmod", "a", 0o400), ("unlink", "a"), ("fstat", 0)],
    [("mkdir", "d"), ("open", "d/e", os.O_RDWR | os.O_CREAT), ("pwrite", 0, (250, 54), 300_000),
     ("map_and_close", 0, (97, 4097), 4095), ("rename", "d/e", "b"), ("lstat", "b")],
)  # fmt: skip


@pytest.fixture(scope="module")
def twins(weed: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    directory = tmp_path_factory.mktemp("twins").resolve()
    flags = ("--write-part-size", str(5 * MIB), "--spool-dir", str(directory / "spool"))
    with MountedTwins(weed, directory, *flags) as both:
        yield both


@pytest.mark.mount
@pytest.mark.server
@pytest.mark.parametrize("program", _ONCE_WRONG, ids=str)
def test_what_was_wrong_once(twins: Twins, program: Program) -> None:
    """These programs get the same on both sides."""
    twins.run(program)


@pytest.mark.mount
@pytest.mark.server
def test_a_daemon_that_is_killed(twins: Twins) -> None:
    """A daemon killed in the middle of a call on names has done it, or the next one does; nothing closed is lost."""

    @settings(max_examples=_WITH_KILLS, derandomize=True, phases=[Phase.generate])
    @given(programs_with_kills(30))
    def run(program: Program) -> None:
        twins.run(program)

    run()


@pytest.mark.mount
@pytest.mark.server
def test_a_mount_does_not_differ(twins: Twins) -> None:
    """Whatever a program does, a mount and a local directory give it the same, and S3 has each closed file."""

    @settings(max_examples=_EXAMPLES, derandomize=True, report_multiple_bugs=False)
    @given(programs(100))
    def run(program: Program) -> None:
        twins.run(program)

    run()
