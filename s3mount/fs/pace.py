"""How far S3 is, from the GETs that ended: their length and time are all that is seen.

L is the least time of the last small GETs, less what their bytes took: queues, retries and slow
answers only add; of those up to 1 MiB, as every file's first is, until there are small ones.  b is
the median rate of the last large ones, L taken off.  Until then: one region, one connection
(measured).

Where a client does not see the first byte of a GET (`store.crt`), it is taken to have come as long
before the last one as b says: what makes one GET slower than others comes before its first byte
(S3, retries, refusals), what makes all of them slow is in b.
"""

import math
from collections import deque

from s3mount.core.distance import Distance
from s3mount.core.waits import Arrival
from s3mount.units import KIB, MIB

START = Distance(latency_s=0.030, bytes_per_s=90e6)
_SMALL, _MEDIUM = 256 * KIB, MIB
#: GETs: recent enough to follow a change within seconds, enough that one odd one is not believed.
_REMEMBERED = 32
#: Of a GET's time, what is taken for transfer at least, however far S3 is thought to be; and no
#: rate is believed that no network has.
_LEAST_TRANSFER_SHARE = 8
_LEAST_TRANSFER_S = 1e-6


class Pace:
    """Observes GETs.

    Attributes:
        distance: as of now.
    """

    def __init__(self) -> None:
        self.distance = START
        self._latencies: deque[float] = deque(maxlen=_REMEMBERED)
        self._rough_latencies: deque[float] = deque(maxlen=_REMEMBERED)
        self._rates: deque[float] = deque(maxlen=_REMEMBERED)

    def note(self, n_bytes: int, took_s: float) -> None:
        """A GET of so many bytes ended well."""
        latency_s, bytes_per_s = self.distance
        if n_bytes <= _MEDIUM:
            latencies = self._latencies if n_bytes <= _SMALL else self._rough_latencies
            latencies.append(max(0.0, took_s - n_bytes / bytes_per_s))
            latency_s = min(self._latencies or self._rough_latencies)
        else:
            transfer_s = max(took_s - latency_s, took_s / _LEAST_TRANSFER_SHARE, _LEAST_TRANSFER_S)
            self._rates.append(n_bytes / transfer_s)
            bytes_per_s = sorted(self._rates)[len(self._rates) // 2]
        self.distance = Distance(latency_s, bytes_per_s)

    def note_arrival(self, n_bytes: int, arrival: Arrival, now: float) -> None:
        """As `note`; fills in the marks that the store could not see."""
        arrival.last_byte_at = min(arrival.last_byte_at, now)
        self.note(n_bytes, arrival.last_byte_at - arrival.sent_at)
        if arrival.first_byte_at == math.inf:
            began_at = arrival.last_byte_at - n_bytes / self.distance.bytes_per_s
            arrival.first_byte_at = max(arrival.sent_at, began_at)
