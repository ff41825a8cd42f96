"""How far S3 is, and what that makes a read worth: bytes that come for nothing with a round trip.

One round trip takes L seconds, one connection brings b bytes a second: while a request is on its
way, L x b bytes could have come.  A read that fetches a small share of that beside what was asked
costs its reader nothing that can be noticed.

The numbers are observed by `fs.pace`; the core has no clock.
"""

from typing import NamedTuple

from s3mount.core.ranges import ByteRange, aligned
from s3mount.units import KIB

#: Fetched around any read, and the gap that two reads of one run may have: TCP's first flights
#: carry that much anyway.
SMALLEST_UNIT = 64 * KIB
#: More is never fetched for a 4 KiB read (issue 4).
LARGEST_UNIT = 256 * KIB
#: A share of 1/16 of the round trip is well below the spread of S3's own answers.
_FREE_SHARE = 16


class Distance(NamedTuple):
    """Seconds to the first byte, and the bytes a second of one connection."""

    latency_s: float
    bytes_per_s: float

    @property
    def worth(self) -> int:
        """The bytes that one round trip is worth."""
        return int(self.latency_s * self.bytes_per_s)

    @property
    def unit(self) -> int:
        """What a random read may fetch: a power of two, 64 to 256 KiB."""
        free = min(max(self.worth // _FREE_SHARE, SMALLEST_UNIT), LARGEST_UNIT)
        return power_of_two(free)


def power_of_two(number: int) -> int:
    """The largest one that is not larger; 1 for less than 2."""
    return 1 << max(0, number.bit_length() - 1)


def cell_of(wanted: ByteRange, unit: int, size: int) -> ByteRange:
    """What a read that may be random fetches: its surroundings, aligned, so that neighbours share.

    At most `unit`, or the read with less than `SMALLEST_UNIT` on either side, and not past `size`.
    """
    while unit > SMALLEST_UNIT:
        cell = aligned(wanted, unit, size)
        if cell.length <= unit:
            return cell
        unit //= 2
    return aligned(wanted, SMALLEST_UNIT, size)
