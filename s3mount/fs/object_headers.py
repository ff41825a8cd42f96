"""What an object is made with beside its content."""

import mimetypes
from dataclasses import dataclass

from s3mount.store.writing import PLAIN, Attributes


@dataclass(frozen=True)
class ObjectHeaders:
    """What objects are made with beside their content."""

    infers_content_type: bool = False

    def of(self, key: str) -> Attributes:
        """Of the object with a key."""
        kind = mimetypes.guess_type(key)[0] if self.infers_content_type else None
        return PLAIN if kind is None else Attributes({"content-type": kind})
