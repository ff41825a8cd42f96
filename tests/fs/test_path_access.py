"""What sections for paths let programs change, over a store in memory."""

from pathlib import Path

import pytest

from s3mount.core.policies import PathPolicies, PathPolicy
from s3mount.errors import NotAllowed, ReadOnlyMount
from s3mount.fs.drafts import Opening
from s3mount.fs.write_policy import WritePolicy
from tests.fs.names_harness import RW, MountedNames, namespace
from tests.support.fake_store import FakeStore

PATHS = PathPolicies([
    ("datasets/**", PathPolicy(is_read_only=True)),
    ("datasets/scratch/**", PathPolicy(is_read_only=False)),
    ("ckpt/**", PathPolicy(is_read_only=False)),
    ("**/final/*", PathPolicy(is_read_only=True)),
])  # fmt: skip
KEYS = ("datasets/a", "datasets/scratch/a", "ckpt/a", "ckpt/run/a", "other/a", "other/final/a")


def bucket() -> FakeStore:
    store = FakeStore()
    for key in KEYS:
        store.put(key, b"old")
    return store


async def overwrite(here: MountedNames, path: str) -> None:
    opening = Opening(is_truncating=True)
    await here.close(await here.files.open((await here.mounted.walk(path)).ino, opening, 0))


async def what_is_refused(here: MountedNames, directory: str) -> dict[str, type[Exception]]:
    """What a program cannot do in a directory with a file `a`, and how it is refused."""
    calls = {
        "create": lambda: here.write(f"{directory}/new", b"1"),
        "mkdir": lambda: here.mkdir(f"{directory}/d"),
        "overwrite": lambda: overwrite(here, f"{directory}/a"),
        "rename": lambda: here.rename(f"{directory}/a", f"{directory}/b"),
        "unlink": lambda: here.unlink(f"{directory}/b"),
    }
    refused: dict[str, type[Exception]] = {}
    for name, call in calls.items():
        try:
            await call()
        except (NotAllowed, ReadOnlyMount) as error:
            refused[name] = type(error)
            if name == "rename":
                calls["unlink"] = lambda: here.unlink(f"{directory}/a")
    return refused


EVERYTHING = ("create", "mkdir", "overwrite", "rename", "unlink")


@pytest.mark.parametrize("switches", [RW, WritePolicy(is_read_only=False)], ids=["rw", "none"])
async def test_who_may_write_where(tmp_path: Path, switches: WritePolicy) -> None:
    """821. Under `access = "read-only"` nothing is made, changed or removed (EROFS), under `access = "rw"` everything
    may be, whatever the mount's switches are; elsewhere these count.
    """
    policy = WritePolicy(switches.is_read_only, is_rw=switches.is_rw, paths=PATHS)
    elsewhere = {} if switches.is_rw else dict.fromkeys(("overwrite", "rename", "unlink"), NotAllowed)
    async with namespace(bucket(), tmp_path, policy=policy) as here:
        assert await what_is_refused(here, "datasets") == dict.fromkeys(EVERYTHING, ReadOnlyMount)
        assert await what_is_refused(here, "other/final") == dict.fromkeys(EVERYTHING, ReadOnlyMount)
        for directory in ("ckpt", "datasets/scratch"):
            assert await what_is_refused(here, directory) == {}
        assert await what_is_refused(here, "other") == elsewhere


async def test_a_directory_with_read_only_paths_stays(tmp_path: Path) -> None:
    """822. A directory is not renamed where a section could make something below it, under the old or the new name,
    read-only; nor is a file moved out of or into such a place.
    """
    sections = PathPolicies([("a/keep/**", PathPolicy(is_read_only=True)), ("z/**", PathPolicy(is_read_only=True))])
    store = FakeStore()
    for key in ("a/keep/f", "a/f", "b/f", "c/f", "z/f"):
        store.put(key, b"1")
    async with namespace(store, tmp_path, policy=WritePolicy(is_read_only=False, is_rw=True, paths=sections)) as here:
        for old, new in (("a", "x"), ("b", "a"), ("a/keep", "x"), ("b/f", "z/f"), ("z/f", "f"), ("b", "z/b")):
            with pytest.raises(ReadOnlyMount):
                await here.rename(old, new)
        await here.rename("b", "x")
        await here.rename("a/f", "c/g")
        await here.names.sync()
        assert sorted(store.objects) == ["a/keep/f", "c/f", "c/g", "x/f", "z/f"]
