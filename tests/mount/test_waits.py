"""The log says what programs waited for."""

import re
import time
from pathlib import Path

import pytest

from tests.support.content import make_content
from tests.support.mounts import mounted
from tests.support.proxy import proxy
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

DISTANCE_S = 0.5
FILES = 6


def test_waits_are_in_the_log(weed: Server, work: Path) -> None:
    """At the unmount the log tells how long programs waited, and for what: each GET and each LIST that one waited for
    counts its distance to S3, and one reader that reads small files never more than its own time.
    """
    bucket = weed.make_bucket()
    for number in range(FILES):
        weed.client.put_object(Bucket=bucket, Key=f"f{number}", Body=make_content(f"f{number}", 115_000))
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        front.delay_s = DISTANCE_S
        front.reset()
        began = time.perf_counter()
        for number in range(FILES):
            assert (mount.path / f"f{number}").read_bytes() == make_content(f"f{number}", 115_000)
        assert len(list(mount.path.iterdir())) == FILES
        took_s = time.perf_counter() - began
        n_gets, n_lists = front.count("GET", is_list=False), front.count(is_list=True)
        assert n_gets == FILES
        assert n_lists >= 1
        assert mount.stop() == 0
    (line,) = re.findall(r"readers waited (.*)", mount.log)
    total, _, causes = line.partition(" s: ")
    seconds = {name: float(number) for number, name in re.findall(r"([\d.]+) ([a-z ]+)", causes)}
    # The CRT does not see the first byte: 115 kB at 90 MB/s are taken for transfer, and tenths are rounded.
    assert seconds["first byte"] >= 0.99 * n_gets * DISTANCE_S - 0.1
    assert seconds["names"] >= n_lists * DISTANCE_S - 0.1
    assert sum(seconds.values()) == pytest.approx(float(total), abs=0.05 * len(seconds) + 0.05)
    assert float(total) <= took_s + 0.1
