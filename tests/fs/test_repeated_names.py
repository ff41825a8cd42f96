"""Calls that a daemon had done when it died, and that the kernel sends to the next one."""

import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from s3mount.errors import AccessDenied, AlreadyExists, DirectoryNotEmpty, NameNotFound, S3MountError
from s3mount.fs.interrupted import VALID_S, InterruptedCall
from s3mount.store.patient_writer import TOKEN
from s3mount.store.writing import Attributes
from tests.fs.harness import ROOT
from tests.fs.names_harness import MountedNames, namespace
from tests.fs.test_names import bucket
from tests.fs.write_harness import failing

#: By the name of the handler: what a program asked for, and the name that marks it.
CALLS: dict[str, tuple[Callable[[MountedNames], Awaitable[object]], str]] = {
    "mkdir": (lambda mount: mount.mkdir("new"), "new"),
    "rmdir": (lambda mount: mount.names.rmdir(ROOT, b"e"), "e"),
    "unlink": (lambda mount: mount.names.unlink(ROOT, b"a"), "a"),
    "symlink": (lambda mount: mount.symlink("new", "a"), "new"),
    "mknod": (lambda mount: mount.mknod("new"), "new"),
    "link": (lambda mount: mount.link("a", "new"), "new"),
    "rename": (lambda mount: mount.names.rename(ROOT, b"a", ROOT, b"new", may_replace=False), "a"),
    "rename of a directory": (lambda mount: mount.names.rename(ROOT, b"d", ROOT, b"new", may_replace=True), "d"),
}


def call_of(verb: str, name: str) -> InterruptedCall:
    return InterruptedCall(verb.split(maxsplit=1)[0], ROOT, zlib.crc32(name.encode()))


async def outcome_of(call: Awaitable[object]) -> str:
    try:
        await call
    except S3MountError as error:
        return type(error).__name__
    return "done"


@pytest.mark.parametrize("verb", CALLS)
async def test_a_call_that_was_done_succeeds_once(tmp_path: Path, verb: str) -> None:
    """What a dead daemon had done before it answered succeeds when the kernel sends it again, and only then, once."""
    store, writer = bucket("d/f", "d/g", "e/")
    await writer.put("a", [b"a"], attributes=Attributes(metadata={TOKEN: "1"}))
    run, name = CALLS[verb]
    async with namespace(store, tmp_path, writer=writer) as first:
        await run(first)
    done = {key: content for key, (_, content) in store.objects.items()}
    async with namespace(store, tmp_path, writer=writer, interrupted=[call_of(verb, name)]) as second:
        assert await outcome_of(run(second)) == "done"
        assert await outcome_of(run(second)) in ("AlreadyExists", "NameNotFound")
        second.check_invariants()
    assert {key: content for key, (_, content) in store.objects.items()} == done


async def test_other_calls_are_not_excused(tmp_path: Path) -> None:
    """A call that nobody was handling fails as ever, and so does one that was, a while after the takeover."""
    store, writer = bucket("a", "new")
    calls = [call_of("mkdir", "other"), call_of("unlink", "gone")]
    async with namespace(store, tmp_path, writer=writer, interrupted=calls) as here:
        with pytest.raises(AlreadyExists):
            await here.mkdir("new")
        with pytest.raises(NameNotFound):
            await here.unlink("missing")


async def test_a_new_file_that_is_refused(tmp_path: Path) -> None:
    """mknod of a file that S3 does not take fails, and neither the name nor the kernel's reference is left."""
    store, writer = bucket()
    async with namespace(store, tmp_path, writer=writer, fault=failing("put", AccessDenied("no"))) as here:
        n_before = here.mounted.fs.statistics().inodes
        with pytest.raises(AccessDenied):
            await here.mknod("new")
        assert not await here.exists("new")
        assert here.mounted.fs.statistics().inodes == n_before


async def test_an_interruption_is_soon_forgotten(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """A while after the takeover a call like one that was interrupted is a call of its own."""
    store, writer = bucket("d/f")
    async with namespace(store, tmp_path, writer=writer, interrupted=[call_of("mkdir", "d")]) as here:
        await trio.sleep(VALID_S + 1)
        with pytest.raises(AlreadyExists):
            await here.mkdir("d")


async def test_what_others_made_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    """A repeated call that finds another's file, link or directory with content in its way fails."""
    store, writer = bucket("a", "d/f", "new/other")
    store.put("taken", b"x")
    calls = [call_of(verb, "taken") for verb in ("link", "symlink", "mkdir", "mknod")]
    calls += [call_of("rename", "d"), call_of("rename", "a")]
    async with namespace(store, tmp_path, writer=writer, interrupted=calls) as here:
        for refused in (
            here.link("a", "taken"),
            here.symlink("taken", "a"),
            here.mkdir("taken"),
            here.mknod("taken"),
            here.rename("a", "taken", may_replace=False),
        ):
            with pytest.raises(AlreadyExists):
                await refused
        with pytest.raises(DirectoryNotEmpty):
            await here.rename("d", "new")
        assert await here.tree() == {
            "a": b"a", "d": None, "d/f": b"d/f", "new": None, "new/other": b"new/other", "taken": b"x",
        }  # fmt: skip


@pytest.mark.parametrize(("left", "made"), [("012", "0"), ("012", "012"), ("2", "012")])
async def test_a_directory_renamed_halfway(tmp_path: Path, left: str, made: str) -> None:
    """A rename of a directory that a daemon died in, while it copied or deleted, is done to its end the next time."""
    store, writer = bucket(*(f"d/{n}" for n in left))
    for n in made:
        store.put(f"new/{n}", f"d/{n}".encode())
    async with namespace(store, tmp_path, writer=writer, interrupted=[call_of("rename", "d")]) as here:
        await here.rename("d", "new")
        assert await here.tree() == {"new": None, **{f"new/{n}": f"d/{n}".encode() for n in "012"}}
    assert sorted(store.objects) == ["new/0", "new/1", "new/2"]


@pytest.mark.parametrize("may_replace", [True, False])
async def test_a_file_renamed_halfway(tmp_path: Path, *, may_replace: bool) -> None:
    """A rename of a file that a daemon died in between copy and DELETE is done to its end when it comes again."""
    store, writer = bucket()
    for key in ("a", "b"):
        await writer.put(key, [b"a"], attributes=Attributes(metadata={TOKEN: "1"}))
    async with namespace(store, tmp_path, writer=writer, interrupted=[call_of("rename", "a")]) as here:
        await here.rename("a", "b", may_replace=may_replace)
        assert await here.tree() == {"b": b"a"}
