"""A mount in a control group that is too small for what programs make it remember."""

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

from s3mount.units import MIB
from tests.fs.trees import SortedStore, tree
from tests.mount import readers
from tests.mount.scripted import content_at
from tests.mount.test_walking import BUCKET, ListedBucket
from tests.support.groups import memory_group
from tests.support.mounts import mounted
from tests.support.scripted import Call, answer, scripted

pytestmark = pytest.mark.mount

#: The daemon takes 85 MiB at its start, 150 with all these names, and where nothing limits it 320 with the streams.
#: Less than 260 is too little where the machine has so much to do that the watch comes late (decision 0032).
_LIMIT = 260 * MIB
_DIRECTORIES, _FILES = 100, 1000
_SIZE, _STREAMS = 64 * MIB, 10
_ETAG = '"0123456789abcdef0123456789abcdef"'


class NamesAndStreams(ListedBucket):
    """Many names of one byte, and some files whose content is a formula."""

    def __init__(self) -> None:
        super().__init__([])
        self._store = SortedStore(tree(_DIRECTORIES, _FILES), latency_s=0.0)
        self.streams = {f"zz/{number:04}" for number in range(_STREAMS)}
        for key in self.streams:
            self._store.put(key, b"")
            found, _ = self._store.objects[key]
            self._store.objects[key] = found._replace(size=_SIZE, etag=_ETAG), b""

    def __call__(self, call: Call) -> bytes:
        key = call.path.removeprefix(f"/{BUCKET}/")
        if call.is_list or key not in self.streams:
            return super().__call__(call)
        first, last = map(int, re.findall(r"\d+", call.headers["range"]))
        body = content_at(key, first, last + 1)
        return answer(206, body, ETag=_ETAG, Content_Range=f"bytes {first}-{last}/{_SIZE}")


def test_a_group_that_is_too_small(work: Path) -> None:
    """In a control group that is smaller than what a walk and its readers would fill, the daemon lives and all bytes
    are right.
    """
    script = NamesAndStreams()
    flags = ("--memory-target", "768", "--metadata-ttl", "indefinite", "--no-takeover")
    with (
        memory_group(_LIMIT) as within,
        scripted(script) as server,
        mounted(BUCKET, work, *flags, url=server.url, within=within) as mount,
        readers.started("digests", [mount.path / key for key in sorted(script.streams)]) as programs,
    ):
        find = subprocess.run(["find", mount.path, "-type", "f"], capture_output=True, text=True, check=False)
        assert (find.returncode, find.stderr[:500]) == (0, "")
        assert len(find.stdout.splitlines()) == _DIRECTORIES * _FILES + _STREAMS
        for path, program in programs.items():
            key = str(path.relative_to(mount.path))
            assert readers.answer(program) == [hashlib.sha256(content_at(key, 0, _SIZE)).hexdigest()]
        assert mount.stop() == 0
        assert all("memory is short" in line for line in mount.warnings())
