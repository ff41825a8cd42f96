"""Where a writer puts its files, by one line of text that a command line can carry.

path:DIRECTORY                 a mount, or a local directory
connector:URL,BUCKET           the S3 Connector for PyTorch
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

_REGION = os.environ.get("AWS_REGION", "us-east-1")


class Sink(Protocol):
    """Files by name."""

    def writer(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """A file to write; it is durable when the block is over."""

    def storage_writer(self, name: str) -> dict[str, Any]:
        """What `torch.distributed.checkpoint.save` wants to know."""

    def storage_reader(self, name: str) -> dict[str, Any]:
        """The same for `load`."""


class Files:
    """A directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[BinaryIO]:
        with Path(f"{self._directory}/{name}").open("wb") as file:
            yield file

    def storage_writer(self, name: str) -> dict[str, Any]:
        return {"checkpoint_id": f"{self._directory}/{name}"}

    storage_reader = storage_writer


class Connector:
    """The connector with default options, as its checkpoints use it."""

    def __init__(self, url: str, bucket: str) -> None:
        from s3torchconnector import S3Checkpoint, S3ClientConfig

        self._config = S3ClientConfig(force_path_style=True)
        self._url, self._bucket = url, bucket
        self._checkpoint = S3Checkpoint(_REGION, s3client_config=self._config, endpoint=url)

    def writer(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        return self._checkpoint.writer(f"s3://{self._bucket}/{name}")

    def storage_writer(self, name: str) -> dict[str, Any]:
        from s3torchconnector.dcp import S3StorageWriter

        path = f"s3://{self._bucket}/{name}"
        return {"storage_writer": self._at_the_server(S3StorageWriter(_REGION, path, s3client_config=self._config))}

    def storage_reader(self, name: str) -> dict[str, Any]:
        from s3torchconnector.dcp import S3StorageReader

        path = f"s3://{self._bucket}/{name}"
        return {"storage_reader": self._at_the_server(S3StorageReader(_REGION, path, s3client_config=self._config))}

    def _at_the_server(self, storage: Any) -> Any:
        """Neither takes an endpoint."""
        from s3torchconnector._s3client import S3Client

        storage.fs._client = S3Client(_REGION, endpoint=self._url, s3client_config=self._config)
        return storage


def open_sink(text: str) -> Sink:
    """The sink that a line of text means."""
    kind, _, rest = text.partition(":")
    return Files(rest) if kind == "path" else Connector(*rest.split(","))
