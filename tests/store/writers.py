"""Buckets to write to, for the store's tests: `writer` is ours, everything else is another client's."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass

from s3mount.core.backoff import Patience
from s3mount.errors import StoreFailure
from s3mount.store.connect import Connection, connect
from s3mount.store.crt_writer import CrtWriter
from s3mount.store.guarded_writer import GuardedWriter, WriteGuardConfig
from s3mount.store.large_bodies import LargeBodies
from s3mount.store.patient_writer import PatientWriter
from s3mount.store.retries import Retries
from s3mount.store.s3_writer import S3Writer
from s3mount.store.session import S3Config
from s3mount.store.write_config import WriteConfig
from s3mount.store.writing import Writer
from tests.store.conftest import CRT, config
from tests.support.directory_bucket import NAME, DirectoryBucket, directory_bucket
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter, FaultyWriter
from tests.support.servers import Server


@dataclass
class WriterBucket:
    """One bucket."""

    writer: Writer
    fake: FakeStore | None
    server: Server | None
    name: str = ""
    is_weed: bool = False
    is_moto: bool = False
    directory: DirectoryBucket | None = None

    def content(self, key: str) -> bytes:
        """The object, as another client reads it."""
        if self.directory is not None:
            return self.directory.objects.get(key).content
        if self.fake is not None:
            return self.fake.objects[key][1]
        assert self.server is not None
        body: bytes = self.server.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return body

    def listed(self) -> list[str]:
        """All keys, as another client lists them."""
        if self.directory is not None:
            return sorted(self.directory.objects.stored)
        if self.fake is not None:
            return sorted(self.fake.objects)
        assert self.server is not None
        pages = self.server.client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return [each["Key"] for page in pages for each in page.get("Contents", ())]


@contextmanager
def writer_of(
    connection: Connection, s3: S3Config, client: str, writing: WriteConfig | None = None
) -> Iterator[PatientWriter]:
    """All by aiobotocore, or bodies by the CRT or by threads; the last attempt by aiobotocore, as a mount does it."""
    writing = writing or WriteConfig()
    last = first = S3Writer(connection.client, s3, writing)
    with closing(LargeBodies(connection.reader.requests, writing.checksums, least=0)) as large:
        if client != "aiobotocore":
            by_threads = large if client == "large" else None
            first = CrtWriter(connection.reader.requests, connection.client, s3, writing, by_threads)
        guarded = GuardedWriter(first, WriteGuardConfig(), bucket=s3.location.bucket)
        patience = Patience(60.0, window_s=0.0, max_attempts=s3.max_attempts)
        yield PatientWriter(guarded, Retries(patience), guarded.through(last))
        large.check_invariants()


@asynccontextmanager
async def server_bucket(
    kind: str, server: Server, client: str, writing: WriteConfig | None = None
) -> AsyncIterator[WriterBucket]:
    """A new bucket of a server."""
    name = server.make_bucket()
    s3 = config(name, server.url)
    async with connect(s3, CRT) as connection:
        with writer_of(connection, s3, client, writing) as writer:
            yield WriterBucket(writer, None, server, name, kind == "weed", kind == "moto")


@asynccontextmanager
async def express_bucket(client: str) -> AsyncIterator[WriterBucket]:
    """An emulated directory bucket."""
    with directory_bucket() as (server, directory):
        s3 = config(NAME, server.url)
        async with connect(s3, CRT) as connection:
            with writer_of(connection, s3, client) as writer:
                yield WriterBucket(writer, None, None, NAME, directory=directory)


def fake_bucket(kind: str) -> WriterBucket:
    """A fake one: as it is, guarded, or with every other request lost in front of who asks again."""
    fake = FakeStore()
    writer = FakeWriter(fake)
    lost = FaultyWriter(writer, lambda name, key, number: ("request", StoreFailure("lost")) if number % 2 else None)
    writers: dict[str, Writer] = {
        "fake": writer,
        "guarded": GuardedWriter(writer, WriteGuardConfig()),
        "patient": PatientWriter(lost, Retries(Patience(), chance=lambda: 0.0)),
    }
    return WriterBucket(writers[kind], fake, None)
