"""The tasks that send the parts of one upload, beside the program that writes them.

They live in the mount's nursery: a call of the kernel that starts one ends before it does.

INVARIANT: a part is sent by one task at a time; S3 keeps the last that arrives under a number.
INVARIANT: the first failure stays; what is sent after it is of no use.
"""

from collections.abc import Callable
from dataclasses import dataclass

import trio

from s3mount.core.attrs import ObjectId
from s3mount.errors import StoreError
from s3mount.fs.parts import StreamedPart, StreamStatistics
from s3mount.fs.write_room import WriteRoom
from s3mount.store.copying import abort_quietly
from s3mount.store.writing import PLAIN, Attributes, Body, Condition, Upload, Writer, Written

#: Attributes of an upload that begins under a key.
Begin = Callable[[str], Attributes]
#: Told of a version and all of its bytes.
Remember = Callable[[ObjectId, Body], None]
#: Seconds for the parts of an abandoned upload to stop.
_STOP_S = 5.0


def _forget(_version: ObjectId, _body: Body) -> None:
    """Nothing is kept."""


@dataclass(frozen=True)
class StreamTools:
    """What all streams of a mount share.

    Attributes:
        nursery: the mount's; parts are sent in it.
        part_size: of the first parts; at least `core.uploads.MIN_PART`.
        counts: added to.
        remember: told of the content of an object that was made whole, by one request.
    """

    writer: Writer
    room: WriteRoom
    nursery: trio.Nursery
    part_size: int
    counts: StreamStatistics
    remember: Remember = _forget


class PartSender:
    """One upload.

    Args:
        begin: attributes of an upload that begins now, under a key.
        retire: called when a part was sent, or failed.

    Attributes:
        key: may change while no upload has begun.
        attributes: of the last upload that began.
        failure: the first.
    """

    def __init__(self, tools: StreamTools, key: str, begin: Begin, retire: Callable[[], None]) -> None:
        self._tools = tools
        self.key = key
        self._begin = begin
        self.attributes = PLAIN
        self._retire = retire
        self._upload: Upload | None = None
        self._creating = trio.Lock()
        self._busy: dict[StreamedPart, None] = {}
        self._ended = trio.lowlevel.ParkingLot()
        self.failure: StoreError | None = None

    def start(self, part: StreamedPart) -> None:
        """Send a part as it is when S3 has it."""
        part.is_busy = True
        part.scope = trio.CancelScope()
        self._busy[part] = None
        self._tools.nursery.start_soon(self._send, part)

    async def _send(self, part: StreamedPart) -> None:
        try:
            with part.scope:
                upload = await self._begun()
                await part.send(self._tools.writer, upload, self._tools.counts)
        except StoreError as error:
            self.failure = self.failure or error
        finally:
            part.is_busy = False
            del self._busy[part]
            self._retire()
            self._ended.unpark_all()

    async def _begun(self) -> Upload:
        async with self._creating:
            if self._upload is None:
                self.attributes = self._begin(self.key)
                self._upload = await self._tools.writer.create_upload(self.key, self.attributes)
            return self._upload

    async def complete(self, parts: list[StreamedPart], condition: Condition) -> Written:
        """The object, when all parts are in S3.

        Raises:
            StoreError: a part could not be sent, or as `Writer.complete`.
        """
        for part in parts:
            if not part.is_sent and not part.is_busy:
                self.start(part)
        await self._wait_idle()
        if self.failure is not None:
            raise self.failure
        upload = await self._begun()
        self._tools.counts.uploads += 1
        sent = [part.sent for part in parts if part.sent is not None]
        written = await self._tools.writer.complete(upload, sent, condition)
        self._upload = None
        return written

    async def stop(self) -> None:
        """Send nothing more, and let nothing be left in S3."""
        for part in self._busy:
            part.scope.cancel()
        with trio.move_on_after(_STOP_S, shield=True):
            await self._wait_idle()
        upload, self._upload = self._upload, None
        if upload is not None:
            self._tools.counts.aborted += 1
            await abort_quietly(self._tools.writer, upload)

    async def _wait_idle(self) -> None:
        while self._busy:
            await self._ended.park()
