"""Names by HEAD, where LIST is denied or fails: known paths open, errors say why not, and little is asked in vain."""

from collections.abc import Callable

import pytest
import trio

from s3mount.cache.metadata import MetadataConfig
from s3mount.errors import AccessDenied, BadCredentials, IsADirectory, NameNotFound, StoreError, StoreFailure
from tests.fs.harness import ROOT, file_system
from tests.fs.trees import A_MINUTE, FOREVER, MINIMAL_MODE, SortedStore, read_directory
from tests.support.fake_store import FakeStore, FaultyStore

Calls = list[tuple[str, str]]


def denying(
    keys: list[str], *, may_list: Callable[[str], bool] = lambda _: False, missing_is_denied: bool = True
) -> tuple[FaultyStore, Calls]:
    """A store that lists only what it may, and every request sent to it."""
    inner = SortedStore(keys)
    calls: Calls = []

    def fault(operation: str, key: str, _call: int) -> StoreError | None:
        calls.append((operation, key))
        if operation == "list" and not may_list(key):
            return AccessDenied("no ListBucket", key=key, operation="ListObjectsV2")
        if operation == "head" and missing_is_denied and key not in inner.objects:
            return AccessDenied("no ListBucket", key=key, operation="HeadObject")  # S3's answer in place of 404
        return None

    return FaultyStore(inner, fault), calls


@pytest.mark.parametrize("missing_is_denied", [True, False])
@pytest.mark.parametrize("config", [FOREVER, MINIMAL_MODE], ids=["forever", "minimal"])
async def test_a_known_path_opens_without_listing(
    autojump_clock: object, caplog: pytest.LogCaptureFixture, *, config: MetadataConfig, missing_is_denied: bool
) -> None:
    """Each component is tried by LIST once, then HEAD and LIST at once; then a GET; and one line is logged."""
    store, calls = denying(["d/e/f", "d/e/g"], missing_is_denied=missing_is_denied)
    async with file_system(store, metadata=config) as mounted:
        assert await mounted.read_file("d/e/f") == b"1"
        want = [("get", "d/e/f")]
        for path in ("d", "d/e", "d/e/f"):
            want += [("list", path), ("head", path), ("list", path + "/")]
        assert sorted(calls) == sorted(want)
        calls.clear()
        assert await mounted.read_file("d/e/g") == b"1"
        assert sorted(calls) == [("get", "d/e/g"), ("head", "d/e/g"), ("list", "d/e/g/")]
        for _ in range(3):
            with pytest.raises(AccessDenied):
                await read_directory(mounted, ROOT)
    assert len([record for record in caplog.records if "denied" in record.msg]) == 1


async def test_the_denial_is_remembered_for_a_minute(autojump_clock: object) -> None:
    """Within 60 s no look-up in that directory is tried by LIST alone; after it one is, and finds it is allowed."""
    allowed: list[bool] = []
    store, calls = denying(["d/a", "d/b", "d/c", "d/e"], may_list=lambda _: bool(allowed))
    async with file_system(store, metadata=FOREVER) as mounted:
        directory = (await mounted.walk("d")).ino
        await mounted.fs.lookup(directory, b"a")
        calls.clear()
        allowed.append(True)
        await trio.sleep(59)
        await mounted.fs.lookup(directory, b"b")
        assert sorted(calls) == [("head", "d/b"), ("list", "d/b/")]
        await trio.sleep(2)
        calls.clear()
        await mounted.fs.lookup(directory, b"c")
        assert calls == [("list", "d/c")]


async def test_a_name_without_an_object_is_taken_for_a_directory(autojump_clock: object) -> None:
    """Nothing tells a missing name from a directory: it can be passed through, not listed, not opened."""
    store, _ = denying([])
    async with file_system(store, metadata=FOREVER) as mounted:
        attrs = await mounted.walk("missing")
        with pytest.raises(IsADirectory):
            await mounted.fs.open(attrs.ino)
        with pytest.raises(AccessDenied):
            await read_directory(mounted, attrs.ino)


async def test_listing_allowed_below_a_prefix_only(autojump_clock: object) -> None:
    """Below it everything is one LIST, and lists; outside names are found by HEAD."""
    keys = ["home/me/a", "home/me/b", "home/you/c"]
    store, calls = denying(keys, may_list=lambda key: key.startswith("home/me/"))
    async with file_system(store, metadata=A_MINUTE) as mounted:
        mine = (await mounted.walk("home/me")).ino
        calls.clear()
        await mounted.fs.lookup(mine, b"a")
        assert calls == [("list", "home/me/a")]
        assert [entry.name for entry in await read_directory(mounted, mine)] == ["a", "b"]
        with pytest.raises(NameNotFound):
            await mounted.walk("home/me/none")
        assert await mounted.read_file("home/you/c") == b"1"
        assert ("head", "home/you/c") in calls


@pytest.mark.parametrize(
    ("path", "broken", "is_found"),
    [("d/f", "list", True), ("d", "head", True), ("d", "list", False), ("d/f", "head", False)],
)
async def test_one_request_that_fails_does_not_matter_when_the_other_answered(
    autojump_clock: object, path: str, broken: str, *, is_found: bool
) -> None:
    """HEAD finds a file though LIST fails, LIST a directory though HEAD fails; else the failure is told."""
    inner = SortedStore(["d/f", "d/g"])
    started: list[bool] = []

    def fault(operation: str, key: str, _call: int) -> StoreError | None:
        if operation == "list" and not key.endswith("/"):
            return AccessDenied("no ListBucket")
        is_broken = started and operation == broken and key.removesuffix("/") == path
        return StoreFailure("broken") if is_broken else None

    async with file_system(FaultyStore(inner, fault)) as mounted:
        if "/" in path:
            await mounted.walk("d")
        started.append(True)
        if is_found:
            await mounted.walk(path)
        else:
            with pytest.raises(StoreFailure):
                await mounted.walk(path)


async def test_bad_credentials_are_no_denial(autojump_clock: object) -> None:
    """Where S3 does not know the key, no HEAD is tried, and nothing is taken for a directory."""
    calls: Calls = []

    def fault(operation: str, key: str, _call: int) -> StoreError | None:
        calls.append((operation, key))
        return BadCredentials("unknown key")

    async with file_system(FaultyStore(SortedStore(["f"]), fault)) as mounted:
        with pytest.raises(BadCredentials):
            await mounted.walk("f")
    assert calls == [("list", "f")]


async def test_a_file_found_by_half_an_answer_is_not_stale_twice(autojump_clock: object) -> None:
    """A stat of a file that was replaced is right, though a store without order fails the LIST of its first attempt."""
    store, left = FakeStore(is_ordered=False), [0]
    store.put("a", b"1")

    def fault(operation: str, _key: str, _call: int) -> StoreError | None:
        is_failing = operation == "list" and left[0] > 0
        left[0] -= is_failing
        return StoreFailure("503") if is_failing else None

    async with file_system(FaultyStore(store, fault), metadata=MINIMAL_MODE) as mounted:
        assert (await mounted.walk("a")).size == 1
        store.put("a", b"22")
        await trio.sleep(1.1)
        left[0] = 1
        assert (await mounted.walk("a")).size == 2
        assert left == [0]
