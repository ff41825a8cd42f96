"""A store at a distance, of objects that are only as large as their names: for counting."""

import trio

from s3mount.core.attrs import ObjectId, ObjectStat
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from tests.support.fake_store import FakeStore

LATENCY_S = 0.020
BYTES_PER_S = 90e6


class FarStore(FakeStore):
    """Zeros, 20 ms away if not told otherwise, 90 MB/s for each request on trio's clock.

    Attributes:
        tells_first_byte: or leaves `Arrival` as it is, as a client does that cannot see it.
        spans: of the GETs that were answered, in that order.
        cancelled: GETs that were given up.
    """

    def __init__(self, latency_s: float = LATENCY_S) -> None:
        super().__init__(latency_s=latency_s)
        self.tells_first_byte = True
        self.spans: list[tuple[str, ByteRange]] = []
        self.cancelled = 0

    def add(self, key: str, size: int) -> None:
        self.objects[key] = (ObjectStat(key, f'"{key}"', size, 1_700_000_000), b"")

    async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
        self.counts["gets"] += 1
        try:
            await trio.sleep(self.latency_s)
            first_byte_at = trio.current_time()
            await trio.sleep(span.length / BYTES_PER_S)
        except trio.Cancelled:
            self.cancelled += 1
            raise
        if arrival is not None and self.tells_first_byte:
            arrival.first_byte_at, arrival.last_byte_at = first_byte_at, trio.current_time()
        self.spans.append((wanted.key, span))
        self.counts["bytes"] += span.length
        return bytes(span.length)
