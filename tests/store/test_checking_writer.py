"""Writing to servers that answer 501 to every condition."""

import logging

import pytest

from s3mount.core.backoff import Patience
from s3mount.errors import AlreadyExists, NotSupported, ObjectChanged
from s3mount.store.checking_writer import CheckingWriter
from s3mount.store.retries import Retries
from s3mount.store.writing import ANYTHING, NEW, Condition, Description, Upload, Written
from s3mount.units import MIB
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter


class Plain(FakeWriter):
    """A server without conditions; with a `reason` it refuses everything for that."""

    reason = ""

    def _write(self, key, content, condition, *args):  # type: ignore[no-untyped-def]
        if condition != ANYTHING or self.reason:
            raise NotSupported(self.reason or "a header implies functionality that is not implemented", key=key)
        return super()._write(key, content, condition, *args)

    async def describe(self, key: str, *, has_tags: bool = False) -> Description:
        self.counts["heads"] += 1
        return await super().describe(key, has_tags=has_tags)


class NoLog:
    async def began(self, upload: Upload) -> None:
        """Nobody asks."""

    async def ended(self, upload: Upload) -> None:
        """Nobody asks."""

    def gave_up(self, upload: Upload) -> None:
        """Nobody asks."""


async def _put(writer: CheckingWriter, condition: Condition) -> Written:
    return await writer.put("key", [b"ours"], condition)


async def _upload(writer: CheckingWriter, condition: Condition) -> Written:
    upload = await writer.create_upload("key")
    parts = [await writer.upload_part(upload, number, [b"x" * 5 * MIB]) for number in (1, 2)]
    return await writer.complete(upload, parts, condition)


@pytest.mark.parametrize("write", [_put, _upload])
async def test_a_server_without_conditions_is_asked_first(write, caplog: pytest.LogCaptureFixture) -> None:  # type: ignore[no-untyped-def]
    """Where a server has no conditions, a HEAD tells whether the write may be made, and the log says so once."""
    store = FakeStore()
    server = Plain(store)
    writer = CheckingWriter(server, Retries(Patience(60.0)), log=NoLog())
    with caplog.at_level(logging.WARNING):
        first = await write(writer, NEW)
        with pytest.raises(AlreadyExists):
            await write(writer, NEW)
        second = await write(writer, Condition(first.id.etag))
        with pytest.raises(ObjectChanged):
            await write(writer, Condition(first.id.etag))
        store.delete("key")
        with pytest.raises(ObjectChanged):
            await write(writer, Condition(second.id.etag))
    assert server.counts["heads"] == 5
    assert [record.getMessage() for record in caplog.records] == [
        "the server has no conditions: of two hosts that write one file at once, one is not told"
    ]


async def test_what_is_refused_for_another_reason_stays_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A server that does not have something else is not taken for one without conditions."""
    server = Plain(FakeStore())
    server.reason = "no such storage class"
    writer = CheckingWriter(server, Retries(Patience(60.0)), log=NoLog())
    for condition in (NEW, ANYTHING):
        with pytest.raises(NotSupported, match="storage class"):
            await _put(writer, condition)
    assert not caplog.records
