"""What objects carry beside their content, where programs change files: as another client of the bucket finds it."""

import os
from pathlib import Path
from typing import Any

from tests.mount.test_writes import Bucket, bucket_on
from tests.support.servers import Server

OURS = {"s3mount-write", "s3mount-spool"}


def attributes(server: Server, bucket: Bucket, key: str) -> tuple[str, dict[str, str]]:
    """Content type and the user's metadata."""
    answer: dict[str, Any] = server.client.head_object(Bucket=bucket.name, Key=key)
    return answer["ContentType"], {name: value for name, value in answer["Metadata"].items() if name not in OURS}


def test_metadata_of_others_is_kept(weed: Server, work: Path) -> None:
    """An append, a patch and a rename keep the metadata and the content type that another client gave an object."""
    with bucket_on(weed, work, "--rw") as bucket:
        theirs = {"Metadata": {"project": "b-7"}, "ContentType": "text/csv"}
        weed.client.put_object(Bucket=bucket.name, Key="a", Body=b"head", **theirs)
        with (bucket.path / "a").open("ab", buffering=0) as file:
            file.write(b" tail")
            os.fsync(file.fileno())
        assert bucket.get("a") == b"head tail"
        with (bucket.path / "a").open("r+b") as file:
            file.write(b"H")
        (bucket.path / "a").rename(bucket.path / "b")
        assert bucket.get("b") == b"Head tail"
        assert attributes(weed, bucket, "b") == ("text/csv", {"project": "b-7"})
