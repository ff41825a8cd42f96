"""Real S3 servers on loopback: SeaweedFS from its wheel, and moto."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import requests
from botocore.config import Config

from tests.support.processes import KEY, REGION, SECRET, WITH_US, free_port, running, wait_until


@dataclass
class Server:
    """An S3 server and a client of its own that knows nothing of s3mount."""

    url: str
    client: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.client = make_client(self.url)

    def make_bucket(self) -> str:
        """A bucket nobody else uses: both servers keep their state between tests."""
        name = "b" + os.urandom(8).hex()
        self.client.create_bucket(Bucket=name)
        return name


def make_client(url: str) -> Any:
    """boto3, path style."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=Config(s3={"addressing_style": "path"}, max_pool_connections=32, retries={"max_attempts": 3}),
    )


@contextlib.contextmanager
def seaweedfs(directory: Path) -> Iterator[Server]:
    """A SeaweedFS server with its state in `directory`; telemetry off, loopback only."""
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "s3.json"
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config.write_text(json.dumps({"identities": [identity]}), encoding="utf-8")
    data = directory / "data"
    data.mkdir(exist_ok=True)
    port, *others = (free_port() for _ in range(4))
    master, volume, filer = others
    command = [
        *WITH_US, str(Path(sys.executable).with_name("weed")), "server",
        f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        "-master.telemetry=false", "-master.volumeSizeLimitMB=1024", "-volume.max=20000",
        f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}",
        "-filer", "-s3", f"-s3.port={port}", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={config}",
    ]  # fmt: skip
    # Each bucket takes seven volumes of its own, and every test a bucket.
    log = directory / "weed.log"
    with running(command, log, patience_s=0.5) as process:  # it ignores SIGTERM while it serves
        server = Server(f"http://127.0.0.1:{port}")
        wait_until(lambda: process.poll() is not None or _stores_objects(server), 120, "SeaweedFS storing an object")
        if process.poll() is not None:
            raise RuntimeError(f"SeaweedFS ended with {process.returncode}: {log.read_text(errors='replace')[-2000:]}")
        yield server


def _stores_objects(server: Server) -> bool:
    """The S3 port answers before the volumes are there, so an object must have been stored and read."""
    try:
        bucket = server.make_bucket()
        server.client.put_object(Bucket=bucket, Key="probe", Body=b"probe")
        return bool(server.client.get_object(Bucket=bucket, Key="probe")["Body"].read() == b"probe")
    except Exception:  # noqa: BLE001  whatever a starting server does
        return False


@contextlib.contextmanager
def moto(directory: Path) -> Iterator[Server]:
    """A moto server: slow, but exact about S3's errors."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [*WITH_US, str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
    url = f"http://127.0.0.1:{port}"
    with running(command, directory / "moto.log"):
        wait_until(lambda: _answers(url), 60, "moto answering")
        yield Server(url)


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/moto-api/", timeout=1).status_code == 200
    except requests.RequestException:
        return False
