"""Whether a server keeps the conditions of writes, found out by writing.

S3 does (general purpose buckets, since 2024; of copies since 2025).  Others answer 501, which a mount's writer makes up
for (`store.checking_writer`), or ignore the header: then two hosts that create the same key both believe that they did.
moto ignores those of CopyObject.  Nothing but trying tells.
"""

import secrets
from typing import NamedTuple

from s3mount.errors import AlreadyExists, NotSupported
from s3mount.store.writing import NEW, Writer


class Conditions(NamedTuple):
    """Whether a put, and a copy, that may only create an object is refused where there is one."""

    of_puts: bool
    of_copies: bool


async def find_conditions(writer: Writer, prefix: str) -> Conditions:
    """Two small objects below `prefix`, which are deleted again; six requests.

    Raises:
        StoreError: something else than a condition was refused; then what was written may still be there.
    """
    first, second = (f"{prefix}.s3mount-{secrets.token_hex(8)}" for _ in range(2))
    await writer.put(first, [b"x"])
    of_puts = of_copies = False
    try:
        await writer.put(first, [b"x"], NEW)
    except (AlreadyExists, NotSupported) as refusal:
        of_puts = isinstance(refusal, AlreadyExists)
    source = (await writer.describe(first)).stat
    await writer.copy(source, second)
    try:
        await writer.copy(source, second, NEW)
    except (AlreadyExists, NotSupported) as refusal:
        of_copies = isinstance(refusal, AlreadyExists)
    await writer.delete_many([first, second])
    return Conditions(of_puts, of_copies)
