"""Runs programs on a mount in memory and on a model of a local file system: the same results, the same tree.

A daemon may be killed between two steps, and in the middle of one: then the next daemon gets that call again, as from
the kernel, and it ends as if nothing had been.
"""

import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import trio

from s3mount.core.backoff import Patience
from s3mount.errors import (
    S3MountError,
    StoreFailure,
)
from s3mount.fs.interrupted import InterruptedCall, InterruptedCalls
from s3mount.fs.namespace import NamespaceConfig
from s3mount.store.patient_writer import PatientWriter
from s3mount.store.retries import Retries
from tests.fs.names_harness import GOOD, NOW, namespace
from tests.fs.program_files import ON_HANDLES, FileSteps, error_of
from tests.fs.program_model import FILE_MODE, File, nodes_in
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter, FaultyWriter

T = TypeVar("T")
Step = tuple[Any, ...]

#: Without any, what is asked and answered at one time has no order.
LATENCY_S = 0.001
#: The name of the kernel's call for each verb that may be sent again.
_CALLS = {"rename new": "rename"}


class MortalWriter(FaultyWriter):
    """A daemon's way to S3, until it is killed."""

    def __init__(self, writer: FakeWriter) -> None:
        super().__init__(writer, lambda *_: None)
        self._calls_left = -1
        self._lost: Literal["request", "answer"] = "request"
        self.died = trio.Event()

    def kill_at(self, n_calls: int, lost: Literal["request", "answer"]) -> None:
        """The daemon dies at one of its next calls: before it is done, or after it and before it is answered."""
        self._calls_left, self._lost = n_calls, lost

    def survived(self) -> None:
        """It made fewer."""
        self._calls_left = -1

    async def _pass(self, name: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        if self.died.is_set():
            raise StoreFailure("who asks is dead")
        self._calls_left -= 1
        if self._calls_left == 0:
            if self._lost == "answer":
                await call()
            self.died.set()
            await trio.sleep_forever()
        return await call()


class Run(FileSteps):
    """One program, on one daemon after the other.

    Args:
        is_moving: the bucket renames objects, and lists in no order.
        keeps_directories, late_s: of the server, as of `FakeStore`.

    Attributes:
        steps: that were done.
    """

    def __init__(
        self, directory: Path, *, is_moving: bool = False, keeps_directories: bool = False, late_s: float = 0.0
    ) -> None:
        self._directory = directory
        super().__init__(FakeStore(is_ordered=not is_moving, latency_s=LATENCY_S, keeps_directories=keeps_directories))
        self._store.late_s = late_s
        self._s3 = FakeWriter(self._store, latency_s=LATENCY_S)
        self._config = NamespaceConfig(conditions=GOOD, clock=lambda: NOW, mover=self._s3 if is_moving else None)
        self._writer: MortalWriter
        self.steps = 0

    async def run(self, program: list[Step]) -> None:
        """Raises AssertionError at the first difference."""
        rest, is_killed = list(program), False
        again: Step | None = None
        while rest or is_killed:
            self._writer = MortalWriter(self._s3)
            writer = PatientWriter(self._writer, Retries(Patience(0.0, max_attempts=1)))
            async with namespace(self._store, self._directory, writer=writer, config=self._config) as self._here:
                await self._here.files.recover()
                if again is not None:
                    await self._repeat(*again)
                elif is_killed:
                    found = await self._here.tree()
                    self._model.check_left(found)
                    self._model.adopt(found)
                is_killed, again = False, None
                while rest and not is_killed:
                    step = rest.pop(0)
                    self.steps += 1
                    if step[0] == "remount":
                        break
                    is_killed = step[0] == "kill"
                    if step[0] == "killed":
                        again = await self._killed(*step[1:])
                        is_killed = again is not None
                    elif not is_killed:
                        await self._step(*step)
                await self._end(is_killed=is_killed)
        async with namespace(self._store, self._directory) as there:
            assert await there.tree() == self._model.tree(), "for the next mount"

    async def _end(self, *, is_killed: bool) -> None:
        """The daemon ends in order, or is killed."""
        if not is_killed:
            await self._close_all()
            wanted = self._model.tree()
            assert await self._here.tree() == wanted
            await self._here.names.sync()
            assert await self._here.drafts.finish() == []
            assert await self._here.tree() == wanted
            kept = {key: self._store.objects[key][1] for key in self._model.objects() if key in self._store.objects}
            assert kept == self._model.objects()
        self._here.is_killed = is_killed
        self._handles.clear()
        for _, node in nodes_in("", self._model.root):  # what a mount shows of its own accord
            if isinstance(node, File):
                node.mode, node.n_writers = FILE_MODE, 0

    async def _close_all(self) -> None:
        while self._handles:
            await self._step("close", 0)

    # -- killed in the middle of a call ---------------------------------------------------------

    async def _killed(self, n_calls: int, lost: Literal["request", "answer"], *step: Any) -> Step | None:
        """What the next daemon gets again, if this one died; before it all files are closed."""
        await self._close_all()
        await self._here.names.sync()
        await self._here.drafts.finish()
        self._model.removed.clear()
        self._writer.kill_at(n_calls, lost)
        verb, path, other = step
        try:
            self._on_model(verb, path, other)
            expected = None
        except S3MountError as error:
            expected = error
        outcome: list[S3MountError | None] = []

        async def call() -> None:
            outcome.append(await error_of(self._on_mount(verb, path, other)))
            done.set()

        async def death() -> None:
            await self._writer.died.wait()
            done.set()

        done = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            nursery.start_soon(death)
            await done.wait()
            nursery.cancel_scope.cancel()
        if self._writer.died.is_set():
            return verb, path, other, expected
        self._writer.survived()
        assert type(outcome[0]) is type(expected), (*step, outcome, expected)
        return None

    async def _repeat(self, verb: str, path: str, other: str, expected: S3MountError | None) -> None:
        """The kernel sends the call again; all is as if nothing had been."""
        target = other if verb == "link" else path
        await self._here.known(target)
        parent, name = await self._here.at(target)
        call = InterruptedCall(_CALLS.get(verb, verb), parent, zlib.crc32(name))
        self._here.names.interrupted = InterruptedCalls([call], trio.current_time)
        outcome = await error_of(self._on_mount(verb, path, other))
        assert type(outcome) is type(expected), ("again", verb, path, other, outcome, expected)
        await self._here.names.sync()
        self._model.removed.clear()
        assert await self._here.tree() == self._model.tree(), ("after", verb, path, other)

    # -- steps ----------------------------------------------------------------------------------

    async def _step(self, verb: str, *arguments: Any) -> None:
        if verb in ON_HANDLES:
            if self._handles:
                await getattr(self, f"_{verb}")(self._handles[arguments[0] % len(self._handles)], *arguments[1:])
        elif verb == "wait":
            await trio.sleep(arguments[0])
        elif verb == "look":
            assert await self._here.tree() == self._model.tree()
        elif verb == "sync":
            await self._here.names.sync()
            self._model.removed.clear()
        elif verb in ("open", "save", "truncate", "chmod", "stat"):
            await getattr(self, f"_{verb}")(*arguments)
        else:
            await self._change_names(verb, *arguments)
        self._here.check_invariants()

    async def _change_names(self, verb: str, path: str, other: str) -> None:
        expected = outcome = None
        try:
            self._on_model(verb, path, other)
        except S3MountError as error:
            expected = error
        outcome = await error_of(self._on_mount(verb, path, other))
        assert type(outcome) is type(expected), (verb, path, other, outcome, expected)

    def _on_model(self, verb: str, path: str, other: str) -> None:
        model = self._model
        match verb:
            case "mkdir":
                model.make(path, {})
            case "rmdir":
                model.rmdir(path)
            case "unlink":
                model.unlink(path)
            case "rename" | "rename new":
                model.rename(path, other, may_replace=verb == "rename")
            case "link":
                model.link(path, other)
            case "symlink":
                model.make(path, other)

    async def _on_mount(self, verb: str, path: str, other: str) -> None:
        mount = self._here
        match verb:
            case "mkdir":
                await mount.mkdir(path)
            case "rmdir":
                await mount.rmdir(path)
            case "unlink":
                await mount.unlink(path)
            case "rename" | "rename new":
                await mount.rename(path, other, may_replace=verb == "rename")
            case "link":
                await mount.link(path, other)
            case "symlink":
                await mount.symlink(path, other)
