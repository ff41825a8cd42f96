"""What is not in S3 at the end of a mount, because it was lost earlier: the exit code goes by it."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from s3mount.errors import AccessDenied, AlreadyExists, ObjectChanged
from s3mount.fs.losses import Losses
from tests.fs.write_harness import Writing, writing
from tests.support.fake_writer import Loss


class Refusing:
    """S3 takes no object as long as it is on."""

    def __init__(self) -> None:
        self.is_on = True

    def __call__(self, name: str, _key: str, _number: int) -> Loss | None:
        return ("request", AccessDenied("no")) if self.is_on and name == "put" else None


async def write(each: Writing, *, is_append: bool = False) -> None:
    draft = await each.open("a", is_append=is_append, is_truncating=not is_append)
    try:
        await draft.append(b"content")
        await each.drafts.flush(draft)
    finally:
        await each.drafts.release(draft)


async def test_an_append_that_was_refused_after_its_close(tmp_path: Path, autojump_clock: MockClock) -> None:
    """What was appended, and refused a second after the close, is told at the end, whatever was saved since."""
    refusing = Refusing()
    async with writing(tmp_path, fault=refusing) as each:
        each.made.store.put("a", b"head ")
        await write(each, is_append=True)
        await trio.sleep(2)
        assert each.drafts.find("a") is None
        refusing.is_on = False
        await write(each, is_append=True)
        assert await each.drafts.finish() == ["a"]
        assert each.made.content() == b"head content"


async def test_a_file_that_was_refused_at_its_close(tmp_path: Path) -> None:
    """What could not be saved at the last close is told at the end, unless its name is saved or removed since."""
    refusing = Refusing()
    async with writing(tmp_path, fault=refusing) as each:
        with pytest.raises(AccessDenied):
            await write(each)
        refusing.is_on = False
        assert await each.drafts.finish() == ["a"]
        await write(each)
        assert await each.drafts.finish() == []
        refusing.is_on = True
        with pytest.raises(AccessDenied):
            await write(each)
        await each.drafts.unlink("a")
        assert await each.drafts.finish() == []


@pytest.mark.parametrize("is_exclusive", [False, True])
async def test_another_host_was_first(tmp_path: Path, is_exclusive: bool) -> None:  # noqa: FBT001
    """A close that says so is enough: the other host's file is there, and nothing of it is missing."""
    async with writing(tmp_path) as each:
        draft = await each.open("a", is_exclusive=is_exclusive)
        await draft.append(b"ours")
        each.made.store.put("a", b"theirs")
        with pytest.raises(AlreadyExists if is_exclusive else ObjectChanged):
            await each.drafts.release(draft)
        assert await each.drafts.finish() == []


def test_what_is_remembered_is_bounded() -> None:
    """A thousand keys are told, and how many more there were; one that is lost again is told once."""
    losses = Losses()
    for number in [*range(1003), *range(3)]:
        losses.add(f"{number:04}")
    assert [losses.told()[0], *losses.told()[-2:]] == ["0000", "0999", "and 3 more"]
    losses.forget("0000")
    assert losses.told()[0] == "0001"
