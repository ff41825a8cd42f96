"""Every S3 call of a change of names fails once, twice and always, before it is done and after: nothing is lost.

The calls of each program are counted first; then one of them after the other is lost.
"""

import contextlib
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import pytest
from trio.testing import MockClock

from s3mount.core.backoff import Patience
from s3mount.errors import AlreadyExists, NameNotFound, S3MountError, StoreFailure
from s3mount.fs.namespace import NamespaceConfig
from s3mount.store.conditions import Conditions
from s3mount.store.patient_writer import PatientWriter
from s3mount.store.retries import Retries
from s3mount.store.writing import Writer
from s3mount.units import MIB
from tests.fs.names_harness import GOOD, MountedNames, namespace
from tests.fs.write_harness import ramp
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter, FaultyWriter, Loss

#: Is copied in parts.
LARGE = ramp(3, 130 * MIB)
Program = Callable[[MountedNames], Awaitable[None]]
Tree = dict[str, bytes | str | None]


async def _unsaved(here: MountedNames, new_path: str) -> None:
    await here.known("new")
    handle = await here.create("new", b"content")
    try:
        await here.rename("new", new_path)
    finally:
        await here.files.release(handle)


async def _unsaved_below(here: MountedNames) -> None:
    await here.known("d/new")
    handle = await here.create("d/new", b"content")
    try:
        await here.rename("d", "e")
    finally:
        await here.files.release(handle)


async def _removed_tree(here: MountedNames) -> None:
    """As rm -rf does it, which takes what is gone for done."""
    for name in ("d/f", "d/g", "d/s/f"):
        with contextlib.suppress(NameNotFound):
            await here.unlink(name)
    for name in ("d/s", "d"):
        with contextlib.suppress(NameNotFound):
            await here.rmdir(name)
    await here.names.sync()


async def _renamed_new(here: MountedNames) -> None:
    """After a refused deletion the file has both names, and the second time one is told so."""
    try:
        await here.rename("a", "n", may_replace=False)
    except AlreadyExists:
        assert await here.read("a") == await here.read("n")
        await _unlinked(here)


async def _unlinked(here: MountedNames) -> None:
    await here.unlink("a")
    await here.names.sync()


async def _rmdir(here: MountedNames) -> None:
    await here.rmdir("empty")
    await here.names.sync()


async def _unlinked_and_made(here: MountedNames) -> None:
    with contextlib.suppress(NameNotFound):
        await here.unlink("a")
    await here.write("a", b"again")


#: What is there at first.
START: dict[str, bytes] = {
    "a": b"a", "b": b"b", "d/": b"", "d/f": b"d/f", "d/g": b"d/g", "d/s/": b"", "d/s/f": b"d/s/f", "empty/": b"",
}  # fmt: skip
#: The program, which keys have something else then: content, and None for none.
PROGRAMS: dict[str, tuple[Program, dict[str, bytes | None]]] = {
    "mkdir": (lambda here: _ignored(here.mkdir("n")), {"n/": b""}),
    "rmdir": (_rmdir, {"empty/": None}),
    "symlink": (lambda here: _ignored(here.symlink("l", "a")), {"l!s3mount-symlink": b"a"}),
    "link": (lambda here: _ignored(here.link("a", "l")), {"l": b"a"}),
    "unlink": (_unlinked, {"a": None}),
    "unlink and make": (_unlinked_and_made, {"a": b"again"}),
    "remove a tree": (_removed_tree, {key: None for key in START if key.startswith("d/")}),
    "rename": (lambda here: here.rename("a", "n"), {"a": None, "n": b"a"}),
    "rename into": (lambda here: here.rename("a", "d/s/n"), {"a": None, "d/s/n": b"a"}),
    "rename over": (lambda here: here.rename("a", "b"), {"a": None, "b": b"a"}),
    "rename new": (_renamed_new, {"a": None, "n": b"a"}),
    "rename unsaved": (lambda here: _unsaved(here, "n"), {"n": b"content"}),
    "rename unsaved over": (lambda here: _unsaved(here, "b"), {"b": b"content"}),
    "rename a directory": (
        lambda here: here.rename("d", "e"),
        {key: None for key in START if key.startswith("d/")}
        | {f"e{key[1:]}": content for key, content in START.items() if key.startswith("d/")},
    ),
    "rename a directory over": (
        lambda here: here.rename("d", "empty"),
        {key: None for key in START if key.startswith("d/")}
        | {f"empty{key[1:]}": content for key, content in START.items() if key.startswith("d/")},
    ),
    "rename a directory with what is unsaved": (
        _unsaved_below,
        {key: None for key in START if key.startswith("d/")}
        | {f"e{key[1:]}": content for key, content in START.items() if key.startswith("d/")}
        | {"e/new": b"content"},
    ),
}  # fmt: skip
#: What is made durable before it is renamed.
_SAVED_FIRST = ("new", "d/new")


async def _ignored(call: Awaitable[object]) -> None:
    await call


class Ways:
    """A bucket, and ways to it, one of which breaks."""

    def __init__(self, fault: Callable[[str, str, int], Loss | None]) -> None:
        self.store = FakeStore()
        self.s3 = FakeWriter(self.store)
        self.faulty = FaultyWriter(self.s3, fault)
        retries = Retries(Patience(60.0, window_s=0.0, max_attempts=4), chance=lambda: 0.0)
        self.writer: Writer = PatientWriter(self.faulty, retries)

    async def begin(self, content: dict[str, bytes]) -> None:
        """As this program writes: each object has a token."""
        writer = PatientWriter(self.s3, Retries(Patience(60.0, window_s=0.0, max_attempts=1)))
        for key, each in content.items():
            await writer.put(key, [each] if each else [])

    def objects(self) -> dict[str, bytes]:
        return {key: content for key, (_, content) in self.store.objects.items()}


def check_kept(name: str, objects: dict[str, bytes], start: dict[str, bytes], wanted: dict[str, bytes | None]) -> None:
    """Each key has its old or its new content, and what is moved is somewhere."""
    for key, content in objects.items():
        states = start.get(key), wanted.get(key), b"content" if key in _SAVED_FIRST else None
        assert content in states, f"{name}: {key} has {content[:40]!r}"
    for key, content in start.items():
        is_meant_to_go = wanted.get(key, content) is None and content not in wanted.values()
        is_replaced = wanted.get(key) not in (None, content)
        if content and not is_meant_to_go and not is_replaced:
            assert content in objects.values(), f"{name}: what {key} had is lost"


async def run(
    name: str,
    directory: Path,
    fault: Callable[[str, str, int], Loss | None],
    mend: Callable[[], None] = lambda: None,
    *,
    large: bool = False,
    conditions: Conditions = GOOD,
) -> bool:
    """Whether the program was told that all went well; if not, it is run again and has to be done then.

    Args:
        mend: nothing fails from then on.
    """
    program, changes = PROGRAMS[name]
    start = START | ({"a": LARGE} if large else {})
    wanted = {key: LARGE if large and content == b"a" else content for key, content in changes.items()}
    ways = Ways(fault)
    await ways.begin(start)
    directory.mkdir()  # noqa: ASYNC240  a test's own
    done = {key: content for key, content in (start | wanted).items() if content is not None}
    config = NamespaceConfig(conditions=conditions, clock=lambda: 1_800_000_000.0)
    is_done = True
    async with namespace(ways.store, directory, writer=ways.writer, config=config) as here:
        try:
            await program(here)
        except S3MountError:
            is_done = False
        check_kept(name, ways.objects(), start, wanted)
        if is_done:
            assert ways.objects() == done, name
        mend()
        if not is_done:
            with contextlib.suppress(NameNotFound, AlreadyExists):  # it was done, and only the answer lost
                await program(here)
            assert ways.objects() == done, f"{name}: the second time"
        tree = await here.tree()
        ways.s3.uploads.clear()
    async with namespace(ways.store, directory) as there:
        assert await there.tree() == tree, f"{name}: another mount sees something else"
    return is_done


@pytest.mark.parametrize("lost", ["request", "answer"])
@pytest.mark.parametrize("name", PROGRAMS)
async def test_every_call_fails(
    name: str, lost: Literal["request", "answer"], tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A call of a change of names that fails twice nobody notices; one that always fails loses nothing, is told, and
    the same change asked for again is done."""
    await every_call(name, lost, tmp_path)


async def test_a_part_of_a_large_file_is_not_copied(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A file that is copied in parts is whole under its old name when one of them cannot be copied."""
    await every_call("rename", "request", tmp_path, large=True)


async def every_call(name: str, lost: Literal["request", "answer"], directory: Path, *, large: bool = False) -> None:
    calls: list[tuple[str, str]] = []

    def counted(method: str, key: str, _number: int) -> None:
        calls.append((method, key))

    assert await run(name, directory / "counted", counted, large=large)
    assert calls
    methods = [method for method, _ in calls]
    chosen = [methods.index("copy_part")] if large else range(len(calls))
    for index, times in itertools.product(chosen, (1_000_000,) if large else (1, 2, 1_000_000)):
        left = times
        wanted = calls[index]

        def fault(method: str, key: str, _number: int, wanted: tuple[str, str] = wanted) -> Loss | None:
            nonlocal left
            if (method, key) != wanted or not left:
                return None
            left -= 1
            return (lost, StoreFailure("lost"))

        def mend() -> None:
            nonlocal left
            left = 0

        is_done = await run(name, directory / f"{index}-{times}", fault, mend, large=large)
        assert is_done or times > 2, f"{name}: {wanted} failed {times} times"
        assert not is_done or times <= 2 or lost == "answer", f"{name}: nobody was told of {wanted}"
