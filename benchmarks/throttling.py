"""Several mounts behind a server that takes 200 requests a second: what they get together, and each.

    python -m benchmarks.throttling [--mounts 4] [--per-s 200] [--seconds 20]

Readers of each mount open files of 1 KiB that nobody read before, 32 at a time, until the time is over.  The
count is the proxy's: requests that passed, by mount, the first second included.
"""

import argparse
import json
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.mount.scripted import ScriptedBucket
from tests.support.mounts import Mount, aws_environment, mounted
from tests.support.proxy import proxy
from tests.support.servers import seaweedfs
from tests.support.throttle import TokenBucket

_READERS = 32
_FILE_BYTES = 1024


def _read_until(mount: Mount, names: list[str], is_over: threading.Event) -> list[OSError]:
    """Read each file once, many at a time; returns the errors that programs got."""

    def read(name: str) -> OSError | None:
        if is_over.is_set():
            return None
        try:
            (mount.path / name).read_bytes()
        except OSError as error:
            return error
        return None

    with ThreadPoolExecutor(_READERS) as pool:
        return [error for error in pool.map(read, names) if error is not None]


def _run(n_mounts: int, per_s: float, seconds: float, work: Path) -> dict[str, object]:
    names = [[f"{mount}-{number:05}" for number in range(int(per_s * seconds * 0.6))] for mount in range(n_mounts)]
    bucket = ScriptedBucket({name: _FILE_BYTES for each in names for name in each})
    with ExitStack() as stack:
        server = stack.enter_context(seaweedfs(work / "weed"))
        front = stack.enter_context(proxy(server.url))
        name = server.make_bucket()
        front.decide = bucket.decide
        environment = aws_environment(AWS_MAX_ATTEMPTS="10")
        flags = ("--metadata-ttl", "indefinite")
        mounts = [
            stack.enter_context(mounted(name, work / str(number), *flags, url=front.url, env=environment))
            for number in range(n_mounts)
        ]
        for mount in mounts:
            list(mount.path.iterdir())
        limit = front.decide = TokenBucket(bucket.decide, per_s=per_s)
        is_over = threading.Event()
        with ThreadPoolExecutor(n_mounts) as pool:
            errors = [pool.submit(_read_until, mounts[each], names[each], is_over) for each in range(n_mounts)]
            time.sleep(seconds)  # noqa: TID251  what is measured
            passed, refused, keys = limit.passed, limit.refused, limit.keys.copy()
            is_over.set()
            n_errors = sum(len(each.result()) for each in errors)
    shares = [sum(n for key, n in keys.items() if key.startswith(f"{mount}-")) / seconds for mount in range(n_mounts)]
    return {
        "good_per_s": round(passed / seconds, 1),
        "refused_share": round(refused / (passed + refused), 3),
        "each_per_s": [round(share, 1) for share in shares],
        "worst_to_best": round(min(shares) / max(shares), 2),
        "errors": n_errors,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mounts", type=int, default=4)
    parser.add_argument("--per-s", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        print(json.dumps(_run(arguments.mounts, arguments.per_s, arguments.seconds, Path(work))))


if __name__ == "__main__":
    main()
