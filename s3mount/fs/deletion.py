"""The DELETE of one version: what another host has written under the name meanwhile stays."""

import logging

from s3mount.errors import ObjectChanged, StoreError
from s3mount.store.retries import may_pass
from s3mount.store.writing import Condition, Writer

log = logging.getLogger(__name__)


async def delete_version(writer: Writer, key: str, etag: str) -> bool:
    """Delete an object, unless it is another version now; returns whether it is gone.

    A server that ignores the condition deletes whatever there is; one that refuses it is asked without.

    Args:
        etag: empty for any version.

    Raises:
        StoreError: it is there still.
    """
    try:
        await writer.delete(key, Condition(etag))
    except ObjectChanged:
        log.info("%r is not deleted: somebody else wrote it meanwhile, or deleted it", key)
        return False
    except StoreError as error:
        if not etag or may_pass(error):
            raise
        await writer.delete(key)
    return True
