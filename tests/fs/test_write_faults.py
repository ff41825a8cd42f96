"""Every S3 call of an upload fails once, twice and always, before it is done and after: never a part of a file.

The calls of each program are counted first; then one of them after the other is lost.
"""

import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import pytest
from trio.testing import MockClock

from s3mount.core.backoff import Patience
from s3mount.errors import S3MountError, StoreFailure
from s3mount.fs.drafts import Opening
from s3mount.store.retries import Retries
from s3mount.units import MIB
from tests.fs.writable import APPEND, RDWR, W, Writable, writable
from tests.fs.write_harness import PART, ramp
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import Loss

OLD = ramp(7, 12 * MIB)
LONG = ramp(0, 2 * PART + 1000)
Program = Callable[[Writable], Awaitable[None]]


async def _small(files: Writable) -> None:
    await files.save("new", b"x" * 1000)


async def _stream(files: Writable) -> None:
    await files.save("new", LONG)


async def _in_two(files: Writable) -> None:
    _, handle = await files.create("new")
    try:
        await files.files.write(handle, 0, LONG)
        await files.files.fsync(handle)
        await files.files.write(handle, len(LONG), LONG)
    finally:
        await files.close(handle)


async def _changed(files: Writable, opening: Opening, offset: int, content: bytes) -> None:
    handle = await files.open("old", opening)
    try:
        await files.files.write(handle, offset, content)
        await files.files.fsync(handle)
    finally:
        await files.close(handle)


async def _replace(files: Writable) -> None:
    await _changed(files, W, 0, LONG)


async def _patch(files: Writable) -> None:
    await _changed(files, RDWR, 6 * MIB + 5, b"patched")


async def _append(files: Writable) -> None:
    await _changed(files, APPEND, 0, b"more")


#: Each with the whole states that its file may have in S3, the last of which is what it should have.
PROGRAMS: dict[str, tuple[Program, str, tuple[bytes | None, ...]]] = {
    "small": (_small, "new", (None, b"x" * 1000)),
    "stream": (_stream, "new", (None, LONG)),
    "in two": (_in_two, "new", (None, LONG, LONG * 2)),
    "replace": (_replace, "old", (OLD, LONG)),
    "patch": (_patch, "old", (OLD, OLD[: 6 * MIB + 5] + b"patched" + OLD[6 * MIB + 12 :])),
    "append": (_append, "old", (OLD, OLD + b"more")),
}


async def run(
    name: str, directory: Path, fault: Callable[[str, str, int], Loss | None], *, leaves_upload: bool = False
) -> bool:
    """Whether the program was told that all went well; S3 has a whole state, and the last one if it was.

    Args:
        leaves_upload: an upload whose id was lost with the answer is found by its listing only (decision 0034).
    """
    program, key, states = PROGRAMS[name]
    store = FakeStore()
    store.put("old", OLD)
    retries = Retries(Patience(60.0, window_s=0.0, max_attempts=4), chance=lambda: 0.0)
    directory.mkdir()  # noqa: ASYNC240  a test's own
    is_done = True
    async with writable(directory, store, fault=fault, retries=retries) as files:
        try:
            await program(files)
        except S3MountError:
            is_done = False
        found = store.objects[key][1] if key in store.objects else None
        assert found in (states[-1:] if is_done else states), f"{name}: {found and len(found)} bytes are in S3"
        if leaves_upload:
            files.writer.uploads.clear()
    return is_done


@pytest.mark.parametrize("lost", ["request", "answer"])
@pytest.mark.parametrize("name", PROGRAMS)
async def test_every_call_fails(
    name: str, lost: Literal["request", "answer"], tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A call of an upload that fails twice nobody notices; one that always fails is told; no file is in parts."""
    calls: list[str] = []

    def counted(method: str, _key: str, _number: int) -> None:
        calls.append(method)

    assert await run(name, tmp_path / "counted", counted)
    assert len(calls) >= (1 if name == "small" else 4)
    for first, times in itertools.product(range(len(calls)), (1, 2, 1_000_000)):
        left, before = times, calls[:first].count(calls[first])  # parts are sent in no order

        def fault(method: str, _key: str, _number: int, first: int = first) -> Loss | None:
            nonlocal left, before
            if method != calls[first]:
                return None
            before -= 1
            if before >= 0 or not left:
                return None
            left -= 1
            return (lost, StoreFailure("lost"))

        leaves_upload = lost == "answer" and calls[first] == "create_upload"
        is_done = await run(name, tmp_path / f"{first}-{times}", fault, leaves_upload=leaves_upload)
        assert is_done or times > 2, f"{name}: call {first}, {calls[first]}, failed {times} times"
        assert not is_done or times <= 2 or lost == "answer", f"{name}: nobody was told of {calls[first]}"
