"""Buckets for the store's tests: one contract, on a fake and on real servers, by either client."""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from s3mount.core.backoff import Patience
from s3mount.core.location import Location
from s3mount.errors import StoreFailure
from s3mount.store.base import ObjectStore
from s3mount.store.catalogue import SplitCatalogue
from s3mount.store.connect import Connection, connect
from s3mount.store.crt import CrtConfig
from s3mount.store.guarded import GuardConfig, GuardedStore
from s3mount.store.patient import PatientStore
from s3mount.store.racing import RacingStore
from s3mount.store.retries import Retries
from s3mount.store.session import S3Config
from s3mount.units import MIB
from tests.support.credential_servers import Issuer
from tests.support.directory_bucket import NAME, DirectoryBucket, directory_bucket
from tests.support.fake_store import FakeStore, FaultyStore
from tests.support.processes import KEY, REGION, SECRET
from tests.support.proxy import Fault, Proxy, Request, proxy
from tests.support.servers import Server

if TYPE_CHECKING:
    from tests.store.credential_chain import World

PART = 1 * MIB
CRT = CrtConfig(connections=16, part_size=PART, threads=1)
GUARD = GuardConfig(deadline_s=60.0)
CLIENTS = ("aiobotocore", "crt")


def config(bucket: str, url: str | None, **changes: Any) -> S3Config:
    """A bucket of a server on loopback; few attempts, so that a test of failure is short."""
    return replace(
        S3Config(Location(bucket), endpoint_url=url, force_path_style=True, max_attempts=3),
        **changes,
    )


def guarded_store_of(connection: Connection, client: str) -> GuardedStore:
    """Everything by aiobotocore, or listing and content by the CRT; once."""
    if client == "crt":
        return GuardedStore(SplitCatalogue(connection.reader, connection.catalogue), connection.reader, GUARD)
    return GuardedStore(connection.catalogue, connection.catalogue, GUARD)


def store_of(connection: Connection, client: str, max_attempts: int = 3) -> PatientStore:
    """The same, as often as that; the last time by aiobotocore, as a mount does it."""
    guarded = guarded_store_of(connection, client)
    last = guarded.through(connection.catalogue, connection.catalogue)
    patience = Patience(GUARD.deadline_s, window_s=0.0, max_attempts=max_attempts)
    return PatientStore(guarded, Retries(patience), last)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test servers' credentials, in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", REGION)


@dataclass
class Bucket:
    """One bucket: `store` is ours; `put` and `delete` are another client's."""

    store: ObjectStore
    fake: FakeStore | None
    server: Server | None
    name: str = ""
    is_weed: bool = False
    is_moto: bool = False
    directory: DirectoryBucket | None = None

    def put(self, key: str, content: bytes) -> None:
        if self.directory is not None:
            self.directory.objects.put(key, content, {})
        elif self.fake is not None:
            self.fake.put(key, content)
        elif self.server is not None:
            self.server.client.put_object(Bucket=self.name, Key=key, Body=content)

    def delete(self, key: str) -> None:
        if self.directory is not None:
            self.directory.objects.delete(key)
        elif self.fake is not None:
            self.fake.delete(key)
        elif self.server is not None:
            self.server.client.delete_object(Bucket=self.name, Key=key)


#: Buckets that list in order, and the others.
ORDERED = [
    "fake",
    "faulty",
    "raced",
    "patient",
    *(
        pytest.param(f"{server}-{client}", marks=pytest.mark.server)
        for server in ("moto", "weed")
        for client in CLIENTS
    ),
]
UNORDERED = [f"express-{client}" for client in CLIENTS]


@pytest.fixture(params=[*ORDERED, *UNORDERED])
def flavour(request: pytest.FixtureRequest, keys: None) -> tuple[str, str, Server | None]:
    """What the contract is tested on: kind of server, client, and the server."""
    kind, _, client = request.param.partition("-")
    fixture = {"moto": "moto_server", "weed": "weed"}.get(kind)
    return kind, client, request.getfixturevalue(fixture) if fixture else None


@pytest.fixture
async def bucket(flavour: tuple[str, str, Server | None], nursery: trio.Nursery) -> AsyncIterator[Bucket]:
    """An empty bucket of every flavour."""
    kind, client, server = flavour
    if kind == "express":
        with directory_bucket() as (scripted, directory):
            async with connect(config(NAME, scripted.url), CRT) as connection:
                yield Bucket(store_of(connection, client), None, None, NAME, directory=directory)
        return
    if server is None:
        fake = FakeStore()
        shaky = FaultyStore(fake, lambda operation, key, number: StoreFailure("broken") if number % 2 else None)
        stores: dict[str, ObjectStore] = {
            "fake": fake,
            "faulty": FaultyStore(fake, lambda operation, key, number: None),
            "raced": RacingStore(GuardedStore(fake, fake, GUARD), nursery),
            "patient": PatientStore(shaky, Retries(Patience(window_s=5.0), chance=lambda: 0.0)),
        }
        yield Bucket(stores[kind], fake, None)
        return
    name = server.make_bucket()
    async with connect(config(name, server.url), CRT) as connection:
        yield Bucket(store_of(connection, client), None, server, name, kind == "weed", kind == "moto")


@dataclass
class Front:
    """A bucket of SeaweedFS behind a proxy that breaks answers; `decide` is set on `proxy`."""

    proxy: Proxy
    server: Server
    name: str

    def put(self, key: str, content: bytes) -> None:
        self.server.client.put_object(Bucket=self.name, Key=key, Body=content)

    def hold_puts(self) -> tuple[threading.Event, threading.Event]:
        """PUTs are held: what is set when one is, and what is to be set to drop those and let others pass."""
        arrived, may_pass = threading.Event(), threading.Event()

        def decide(request: Request) -> Fault | None:
            if request.method == "PUT" and not may_pass.is_set():
                arrived.set()
                may_pass.wait(60)
                return Fault(drop=True)
            return None

        self.proxy.decide = decide
        return arrived, may_pass

    @asynccontextmanager
    async def store(self, client: str, **changes: Any) -> AsyncIterator[PatientStore]:
        s3 = config(self.name, self.proxy.url, **changes)
        async with connect(s3, CRT) as connection:
            yield store_of(connection, client, s3.max_attempts)

    @asynccontextmanager
    async def guarded_store(self, client: str) -> AsyncIterator[GuardedStore]:
        async with connect(config(self.name, self.proxy.url), CRT) as connection:
            yield guarded_store_of(connection, client)


@pytest.fixture
def front(weed: Server, keys: None) -> Iterator[Front]:
    """A proxied bucket for one test."""
    with proxy(weed.url) as state:
        yield Front(state, weed, weed.make_bucket())


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    """Which client reads the content."""
    return str(request.param)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, work: Path) -> Iterator["World"]:
    """Every test begins with no credentials anywhere; only the region is known."""
    from tests.store.credential_chain import World

    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("HOME", str(work))
    with ExitStack() as stack:
        yield World(monkeypatch, work, stack, Issuer("ISSUED"))
