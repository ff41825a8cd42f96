"""Drafts that do not end for a while: a last close meanwhile leaves it to who pinned them.

A rename looks for what is being written, and then waits for S3; a draft that ended in between would be neither moved as
one nor copied as an object, and nobody would be told of the new name.
"""

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio

from s3mount.errors import S3MountError
from s3mount.fs.draft import Draft
from s3mount.fs.drafts import Drafts

log = logging.getLogger(__name__)


@asynccontextmanager
async def pinned(drafts: Drafts, some: Iterable[Draft]) -> AsyncIterator[None]:
    """Have some drafts as long as the block lasts; what cannot be saved at its end is logged, as at a release."""
    pins = list(some)
    for draft in pins:
        draft.users += 1
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            for draft in pins:
                try:
                    await drafts.release(draft)
                except S3MountError as error:
                    log.warning("%r is not in S3: %s", draft.key, error)
