"""What the journal of a spooled file says, so that another daemon can upload it: one JSON object.

A record stands for the bytes of the file that were acknowledged: what is written after it may be there, or not.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from s3mount.core.extents import Extents
from s3mount.core.ranges import ByteRange

#: Records of another one are left where they are.
VERSION = 1


@dataclass(frozen=True)
class SpoolRecord:
    """An acknowledged state of a file.

    Attributes:
        mark: is in the metadata of the object that this state becomes; of no other.
        base_etag: of the version it is based on, and to replace; empty where there was none.
        base_size: of that version; `base_stop`, `size` and `changes` as of `core.extents`.
    """

    key: str
    mark: str
    base_etag: str
    base_size: int
    base_stop: int
    size: int
    changes: tuple[tuple[int, int], ...]

    @property
    def extents(self) -> Extents:
        """Of the file then."""
        return Extents.restored(self.base_size, self.base_stop, self.size, map(ByteRange._make, self.changes))

    def encode(self) -> bytes:
        """To be written."""
        return json.dumps({"version": VERSION, **asdict(self)}).encode()


def decode(content: bytes) -> SpoolRecord | None:
    """A record that was written; None when it is another version's, or no record."""
    try:
        fields: dict[str, Any] = json.loads(content)
        if fields.pop("version") != VERSION:
            return None
        changes = tuple((int(start), int(stop)) for start, stop in fields.pop("changes"))
        return SpoolRecord(**fields, changes=changes)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
