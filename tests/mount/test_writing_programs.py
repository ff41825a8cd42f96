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
from tests.mount.writing_programs import programs
from tests.support.servers import Server

#: What CI has time for: about 1,500 steps, and as many looks at the results; `make writes` goes on.
_EXAMPLES = 20


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
)


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
def test_a_mount_does_not_differ(twins: Twins) -> None:
    """Whatever a program does, a mount and a local directory give it the same, and S3 has each closed file."""

    @settings(max_examples=_EXAMPLES, derandomize=True, report_multiple_bugs=False)
    @given(programs(40))
    def run(program: Program) -> None:
        twins.run(program)

    run()
