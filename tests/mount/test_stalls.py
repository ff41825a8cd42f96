"""GETs that stall: a program reads on long before any deadline."""

import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.support.content import make_content
from tests.support.mounts import mounted
from tests.support.proxy import Fault, Request, proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

_FILES = {f"{index:02}": make_content(str(index), 100_000) for index in range(30)}
_FOR_EVER_S = 120


@pytest.fixture(scope="module")
def bucket(weed: Server) -> str:
    """A bucket of small files, each one GET."""
    name = weed.make_bucket()
    for key, content in _FILES.items():
        weed.client.put_object(Bucket=name, Key=key, Body=content)
    return name


@pytest.mark.parametrize("fault", [
    Fault(stall_s=_FOR_EVER_S, drop=True),
    Fault(forward_bytes=0, hold_s=_FOR_EVER_S),
    Fault(forward_bytes=50_000, hold_s=_FOR_EVER_S),
], ids=["nothing", "headers", "half"])  # fmt: skip
def test_a_get_that_stalls_is_raced(weed: Server, bucket: str, work: Path, fault: Fault) -> None:
    """A GET that S3 leaves without an answer is sent once more, after three times what such GETs take, a second at
    least, and the program gets its bytes.
    """
    stalled: list[str] = []
    lock = threading.Lock()

    def decide(request: Request) -> Fault | None:
        key = request.target.rpartition("/")[2]
        with lock:
            if request.method != "GET" or request.is_list or key < "25" or key in stalled:
                return None
            stalled.append(key)
        return fault

    # The CRT by itself needs 32 s, and the deadline would come first.
    with proxy(weed.url) as front, mounted(bucket, work, "--request-deadline", "20", url=front.url) as mount:
        front.decide = decide
        front.reset()
        for key, content in _FILES.items():
            assert (mount.path / key).read_bytes() == content
        assert stalled == ["25", "26", "27", "28", "29"]
        sent = Counter(each.target.rpartition("/")[2] for each in front.requests if not each.is_list)
        assert [sent[key] for key in stalled] == [2] * len(stalled)
        assert sent.keys() == _FILES.keys()
        assert mount.stop() == 0
        assert mount.warnings() == []
