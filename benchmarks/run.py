"""One run of a benchmark: its servers, distances, mounts and programs, and the figures that came out.

Servers, nginx and keys are made when first asked for and shared by the rest of the run, so that
everything in one table stands on the same ground.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks import keysets
from benchmarks.distance import Front, nginx
from benchmarks.many_keys import make_keys, many_keys
from tests.support.mounts import aws_environment
from tests.support.processes import wait_until
from tests.support.servers import Server, seaweedfs

#: nginx writes its log when a request is over, which may be after the client has its answer.
_LOG_LATE_S = 0.2


@dataclass
class Requests:
    """What went through an nginx meanwhile, filled in when the block ends."""

    LIST: int = 0
    HEAD: int = 0
    GET: int = 0


@dataclass
class Program:
    """A program that ran; `seconds` is None when it was given up."""

    seconds: float | None
    n_lines: int = 0


@dataclass
class Run:
    """Attributes: repeats of what is cheap; every count of names is divided by `divisor`."""

    work: Path
    repeats: int
    divisor: int = 1
    results: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    aims: dict[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._stored: set[str] = set()
        self._reported: set[str] = set()
        self._fronts: dict[tuple[str, float], Front] = {}
        self._shapes: dict[tuple[object, ...], str] = {}

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def count(self, n: int) -> int:
        """How many names to take for n."""
        return n // self.divisor

    def directory(self, name: str = "d") -> Path:
        """A new one."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.work))

    @cached_property
    def server(self) -> Server:
        """SeaweedFS."""
        return self._stack.enter_context(seaweedfs(self.directory("weed")))

    @cached_property
    def bucket(self) -> str:
        """The one bucket on it."""
        return self.server.make_bucket()

    def stored(self, shape: str, directory: str, *numbers: int) -> str:
        """host:port of SeaweedFS, with a key set in `bucket` from now on."""
        if directory not in self._stored:
            keysets.store(self.server.url, self.bucket, make_keys(shape, directory, *numbers))
            self._stored.add(directory)
        return self.server.url.removeprefix("http://")

    def generated(self, shape: str, directory: str, *numbers: int) -> str:
        """host:port of a server of keys without objects."""
        server = (shape, directory, *numbers)
        if server not in self._shapes:
            keys = many_keys(self.directory("keys"), shape, directory, *numbers)
            self._shapes[server] = self._stack.enter_context(keys)
        return self._shapes[server]

    def front(self, upstream: str, delay_s: float) -> Front:
        """The nginx at a distance from a server."""
        if (upstream, delay_s) not in self._fronts:
            front = nginx(upstream, self.directory("nginx") / "front", delay_s=delay_s)
            self._fronts[upstream, delay_s] = self._stack.enter_context(front)
        return self._fronts[upstream, delay_s]

    @contextlib.contextmanager
    def counting(self, front: Front) -> Iterator[Requests]:
        """The requests of the block, by what they ask for."""
        requests, before = Requests(), len(front.requests())
        yield requests
        time.sleep(_LOG_LATE_S)  # noqa: TID251  another process
        for line in front.requests()[before:]:
            method, _, _, uri, *_ = line.split(" ")
            if method == "HEAD":
                requests.HEAD += 1
            elif "list-type=2" in uri or "prefix=" in uri:
                requests.LIST += 1
            else:
                requests.GET += 1

    def ask(self, module: str, *arguments: object) -> dict[str, float]:
        """What a program of this package prints."""
        command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=aws_environment())
        answer: dict[str, float] = json.loads(done.stdout)
        return answer

    def program(self, *command: str, patience_s: float = 1800) -> Program:
        """A program, and how many lines it prints.

        One that is given up may hang in the kernel until its mount is gone; it is waited for at the end.
        """
        output = self.directory("output") / "lines"
        with output.open("wb") as sink:
            started = time.perf_counter()
            process = subprocess.Popen(command, stdout=sink, env=aws_environment(LC_ALL="C"))
            self._stack.callback(process.wait, 60)
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                process.kill()
                return Program(None)
            seconds = time.perf_counter() - started
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
        return Program(seconds, output.read_bytes().count(b"\n"))

    def note(self, label: str, **figures: float | None) -> None:
        """Keep figures of one line of the table; what could not be measured is left out."""
        for name, value in figures.items():
            if value is not None:
                self.results[label][name].append(value)

    def aim(self, label: str, **limits: float) -> None:
        """The most that figures of a line should be; the table says so."""
        for name, limit in limits.items():
            self.aims[label, name] = limit

    def report(self) -> None:
        """Lines of the table that were not printed yet: medians, with the aims."""
        for label in [label for label in self.results if label not in self._reported]:
            self._reported.add(label)
            figures = self.results[label]
            columns = [self._column(label, name, statistics.median(values)) for name, values in figures.items()]
            print(f"{label:76}", *columns, flush=True)

    def _column(self, label: str, name: str, value: float) -> str:
        aim = self.aims.get((label, name))
        against = "" if aim is None else f" (aim {aim:.4g}{', MISSED' if value > aim else ''})"
        return f"{value:9.2f} {name}{against}"


def settled(value_of: Any, patience_s: float = 30) -> float:
    """A figure of another process once it has not changed by 1 % for a second."""
    seen: list[float] = []

    def is_still() -> bool:
        seen.append(value_of())
        recent = seen[-50:]  # wait_until asks every 0.02 s
        return len(recent) == 50 and max(recent) - min(recent) < 0.01 * max(recent)

    with contextlib.suppress(TimeoutError):
        wait_until(is_still, patience_s, "memory settling")
    return seen[-1]
