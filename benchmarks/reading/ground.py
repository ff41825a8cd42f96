"""What all rows of a run stand on: one server, its objects and links, and how a reader is measured.

Objects and links are made when first asked for.  Content comes from `benchmarks.reading.objects`.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmarks.distance import Copies, Front, nginx
from benchmarks.reading.contestants import Contestant, Link, Maker
from benchmarks.reading.objects import Objects
from benchmarks.reading.table import Figures, Row, Table
from benchmarks.reading.traffic import Traffic, add_up
from tests.support.certificates import Authority, make_authority
from tests.support.mounts import aws_environment
from tests.support.servers import Server, seaweedfs

#: nginx writes its log when a request is over, which may be after the client has its answer.
_LOG_LATE_S = 0.3
_PATIENCE_S = 600
#: The peers' libraries, in an environment beside ours (`.ci/prepare`).
PEERS = Path(sys.prefix).with_name(Path(sys.prefix).name + "-peers") / "bin/python"
_ROOT = Path(__file__).parents[2]


@dataclass
class Ground:
    """Attributes: a directory to work in; times each row is measured; whether all sizes are small; who takes part;
    another directory for what the server keeps.
    """

    work: Path
    repeats: int = 1
    is_quick: bool = False
    has_peers: bool = True
    table: Table = field(default_factory=Table)
    server_work: Path | None = None

    def __post_init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._fronts: dict[tuple[float, str, bool, Copies | None], Front] = {}

    def __enter__(self) -> "Ground":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def scaled(self, full: int, quick: int) -> int:
        """A size or a count."""
        return quick if self.is_quick else full

    def seconds(self, full: float) -> float:
        """How long a reader that could go on for ever is watched."""
        return 0.5 if self.is_quick else full

    def directory(self, name: str = "d") -> Path:
        """A new one."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.work))

    @cached_property
    def server(self) -> Server:
        """SeaweedFS."""
        work = Path(tempfile.mkdtemp(prefix="weed-", dir=self.server_work or self.work))
        return self._stack.enter_context(seaweedfs(work))

    @cached_property
    def bucket(self) -> str:
        """The one bucket on it."""
        return self.server.make_bucket()

    @cached_property
    def objects(self) -> Objects:
        """What is in the bucket."""
        return Objects(self.server, self.bucket, self.directory("objects"))

    @cached_property
    def authority(self) -> Authority:
        """Who signed the certificate of links with TLS."""
        return make_authority(self.directory("ca"))

    def empty(self) -> None:
        """Another bucket in place of this one, which goes with all it has: a server in memory has little room."""
        self.server.client.delete_bucket(Bucket=self.bucket)
        self.bucket = self.server.make_bucket()

    # links

    def near(self) -> Link:
        """The server itself; nobody counts its requests."""
        return Link(self.server.url)

    def link(self, delay_s: float, rate: str = "90m", *, is_tls: bool = False, copies: Copies | None = None) -> Link:
        """A link with a delay of each request and a rate of each connection (nginx's words)."""
        kind = delay_s, rate, is_tls, copies
        if kind not in self._fronts:
            upstream = self.server.url.removeprefix("http://")
            tls = str(self.authority.chain) if is_tls else None
            where = self.directory("nginx") / "d"
            made = nginx(upstream, where, delay_s=delay_s, rate=rate, tls=tls, workers=2, copies=copies)
            self._fronts[kind] = self._stack.enter_context(made)
        return Link(self._fronts[kind].url, str(self.authority.bundle) if is_tls else None)

    def lines(self, link: Link) -> list[str]:
        """What the log of a link has so far, a line for each request."""
        time.sleep(_LOG_LATE_S)  # noqa: TID251  another process
        return next((front.requests() for front in self._fronts.values() if front.url == link.url), [])

    @contextlib.contextmanager
    def watched(self, link: Link) -> Iterator[list[Traffic]]:
        """The traffic of the block, once it is over; none where nobody counts."""
        front = next((front for front in self._fronts.values() if front.url == link.url), None)
        seen: list[Traffic] = []
        before = len(front.requests()) if front else 0
        yield seen
        if front:
            time.sleep(_LOG_LATE_S)  # noqa: TID251  another process
            seen.append(add_up(front.requests()[before:]))

    # measuring

    def program(self, module: str, *arguments: object, ca: str | None = None) -> Figures:
        """What a program of this package reports, in its last line; readers run where the peers' libraries are.

        `ca` is trusted by the whole process: the connector knows the system's store only.
        """
        has_peers = module.startswith(("readers.", "writers.")) and self.has_peers
        command = [str(PEERS if has_peers else sys.executable), "-m", f"benchmarks.{module}", *map(str, arguments)]
        if ca and has_peers:
            mount = f'mount --bind {ca} /etc/ssl/certs/ca-certificates.crt; exec "$@"'
            command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", mount, "sh", *command]
        done = subprocess.run(
            command, check=False, capture_output=True, cwd=_ROOT, env=aws_environment(), timeout=_PATIENCE_S
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode()[-2000:]}")
        answer: Figures = json.loads((done.stdout.splitlines() or [b"{}"])[-1])
        return answer

    def row(self, part: str, what: str, who: str, **at: float) -> Row:
        """See `Table.row`."""
        return self.table.row(part, what, who, **at)

    def needs_peers(self, part: str, what: str) -> bool:
        """Whether the libraries of a row are there; where they are not, the run says so."""
        if not self.has_peers:
            print(f"\n{part}: {what}: left out, it needs {PEERS}", flush=True)
        return self.has_peers

    def raw(self, row: Row, link: Link, how: str, *arguments: object) -> None:
        """Measure the CRT client alone."""
        ca = [link.ca] if link.ca else []
        with self.watched(link) as seen, busy() as machine:
            figures = self.program("raw_crt", how, link.url, self.bucket, *arguments, *ca)
        if how == "samples":
            figures["files"] = figures.pop("reads")
        _note(row, figures, figures["cpu_s"], figures["rss_mib"], seen, machine)

    def note_raw(self, row: Row, link: Link, how: str, *arguments: object) -> None:
        """Measure uploads by the CRT client alone."""
        with self.watched(link) as seen, busy() as machine:
            figures = self.program("raw_put", how, link.url, self.bucket, *arguments)
        _note(row, figures, figures["cpu_s"], figures["rss_mib"], seen, machine)

    def mounted(self, make: Maker, link: Link) -> contextlib.AbstractContextManager[Contestant]:
        """A contestant that starts cold."""
        return make(link, self.bucket, self.directory("mount"))

    def measure(self, row: Row, who: Contestant, link: Link, module: str, *arguments: object) -> Figures:
        """Run a reader program on a contestant and keep what it, the daemon and the server counted.

        Args:
            module: of `benchmarks.readers`, or with its package: "writers.files".
        """
        before_s = who.daemon.cpu_s() if who.daemon else 0.0
        with self.watched(link) as seen, busy() as machine:
            figures = self.program(module if "." in module else f"readers.{module}", *arguments, ca=link.ca)
        cpu_s = who.daemon.cpu_s() - before_s if who.daemon else figures["cpu_s"]
        rss_mib = who.daemon.rss_mib("VmHWM") if who.daemon else figures["rss_mib"]
        _note(row, figures, cpu_s, rss_mib, [] if who.name == "local" else seen, machine)
        return figures


def _note(row: Row, figures: Figures, cpu_s: float, rss_mib: float, seen: list[Traffic], machine: list[float]) -> None:
    n_bytes, files = figures["bytes"], figures.get("files")
    row.note(mb_per_s=n_bytes / figures["seconds"] / 1e6, seconds=figures["seconds"])
    row.note(cpu_s_per_gb=cpu_s / (n_bytes / 1e9))
    if files:
        row.note(files_per_s=files / figures["seconds"], cpu_us_per_file=cpu_s / files * 1e6)
        row.note(files=files)
    for name in ("iops", "p50_ms", "p99_ms", "reads", "samples_per_s", "wrong_slices", "call_s"):
        row.note(**{name: figures.get(name)})
    for traffic in seen:
        row.note(GET=traffic.gets, HEAD=traffic.heads, LIST=traffic.lists, server_mb=traffic.n_bytes / 1e6)
        row.note(server_of_read=traffic.n_bytes / n_bytes, largest_get_kib=traffic.largest / 1024)
        row.note(gets_at_once=traffic.at_once)
    row.note(peak_rss_mib=rss_mib, machine_busy=machine[0])


@contextlib.contextmanager
def busy() -> Iterator[list[float]]:
    """The part of the machine's CPU time that was used in the block."""
    answer: list[float] = []
    before = _ticks()
    yield answer
    used, idle = (now - then for now, then in zip(_ticks(), before, strict=True))
    answer.append(used / max(used + idle, 1))


def _ticks() -> tuple[int, int]:
    """Used and idle so far, of all processors (proc(5), /proc/stat)."""
    user, nice, system, idle, iowait, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split()[1:9])
    return user + nice + system + irq + softirq, idle + iowait
