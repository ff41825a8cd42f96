"""Who asks S3 what objects say of files, in a mount with --posix-metadata; one that only reads has it, too."""

from dataclasses import dataclass

import trio

from s3mount.cache.metadata import MetadataCache
from s3mount.config import MountConfig
from s3mount.fs.stored_attributes import StoredAttributes
from s3mount.store.connect import Connection
from s3mount.store.guarded_writer import GuardedWriter, WriteGuardConfig
from s3mount.store.patient_writer import PatientWriter
from s3mount.store.retries import Retries
from s3mount.store.s3_writer import S3Writer


@dataclass(frozen=True)
class Describing:
    """What is known, and who counts the requests; None where nobody asks."""

    stored: StoredAttributes
    guarded: GuardedWriter | None


def describing(mount: MountConfig, connection: Connection, cache: MetadataCache, nursery: trio.Nursery) -> Describing:
    """Put it together."""
    posix = mount.writing.posix
    if posix is None:
        return Describing(StoredAttributes(cache), None)
    writer = S3Writer(connection.client, mount.s3, mount.writing.objects)
    limits = WriteGuardConfig(mount.guard.deadline_s, mount.guard.max_gets, mount.guard.max_gets)
    guarded = GuardedWriter(writer, limits, bucket=mount.s3.location.bucket)
    patient = PatientWriter(guarded, Retries(mount.patience))
    return Describing(StoredAttributes(cache, patient.describe, posix, nursery), guarded)
