"""One mount's configuration: the frozen sections that each component defines beside itself.

`cli` makes it from argv and the environment, once, and validates it once.  `daemon.wiring` hands
each component its own section; nobody gets the whole.

Sizes that depend on each other are decided here.  The memory target is divided, so that resident
memory stays under it by construction (docs/decisions/0018-the-memory-target.md):

    in transit   a quarter, at least what the CRT's smallest pool gives: parts between socket and callback
    the budget   what is left: all content that is held, each byte counted from the start of its GET on
    the disks    of the budget, up to a quarter: replies that wait to be written, beside the readers that have them
    the heap     an eighth: what malloc keeps free between parts; `daemon.allocator` trims what is more
"""

import math
from dataclasses import dataclass
from pathlib import Path

from s3mount.cache.ages import MetadataConfig
from s3mount.cache.disk_config import DiskCacheConfig
from s3mount.cache.writing import MAX_QUEUED
from s3mount.core.attrs import Ownership
from s3mount.core.backoff import Patience
from s3mount.core.cells import BLOCK_SIZE, CELL_SIZE
from s3mount.core.ttl import MINIMAL, TimeToLive
from s3mount.errors import BadOption
from s3mount.fs.write_config import WritingConfig
from s3mount.fuse.options import FuseConfig
from s3mount.limits import Host, this_host
from s3mount.logs import LogConfig
from s3mount.store.crt import CrtConfig
from s3mount.store.guarded import GuardConfig
from s3mount.store.session import S3Config
from s3mount.store.transit import MIN_TRANSIT
from s3mount.units import GIB, MIB, format_size

DEFAULT_PART_SIZE = 8 * MIB
#: S3 User Guide, "Multipart upload limits": a part is 5 MiB to 5 GiB; reading keeps to the same.
MIN_PART_SIZE = 5 * MIB
MAX_PART_SIZE = 5 * GIB
#: The CRT's pool takes half of it; below this nothing is left to read ahead with.
MIN_MEMORY_TARGET = 256 * MIB
DEFAULT_GBPS = 10.0
_TRANSIT_SHARE = 4
_HEAP_SHARE = 8
_QUEUES_SHARE = 4
#: Mountpoint's, with a cache: each epoch of a training job would ask for names that hardly change.
_TTL_WITH_CACHE = TimeToLive(60.0)
#: One S3 connection gives about 90 MB/s (S3 performance guidelines); 25 of them fill 10 Gbps less
#: round trips.  Small files need more at once than that, whatever the network can do.
_CONNECTIONS_PER_GBPS = 2.5
_MIN_CONNECTIONS = 128
_MAX_CONNECTIONS = 1024
#: Event loops of the CRT, or as many as there are processors for this process: four move 40 Gbps of TLS; a host's 192
#: cores belong to training, and more threads than a quota of processor time has work for only wait for each other.
_MAX_CRT_THREADS = 4


@dataclass(frozen=True)
class ReadConfig:
    """Attributes: the largest GET, the byte budget, what may wait for each disk, and the memory target, in bytes."""

    part_size: int
    budget_bytes: int
    memory_target: int
    disk_queue_bytes: int = 0


@dataclass(frozen=True)
class MountConfig:
    """Everything the daemon needs to know.

    Attributes:
        has_takeover: a mounter keeps the mount, and another daemon takes it over when this one dies.
        hang_timeout_s: of silence, after which it is killed for that; 0 for never.
    """

    s3: S3Config
    crt: CrtConfig
    guard: GuardConfig
    patience: Patience
    read: ReadConfig
    metadata: MetadataConfig
    writing: WritingConfig
    cache: DiskCacheConfig | None
    owner: Ownership
    fuse: FuseConfig
    log: LogConfig
    runtime_directory: Path
    has_takeover: bool = True
    hang_timeout_s: float = 30.0


@dataclass(frozen=True)
class Limits:
    """What the sizing flags said.

    Args:
        memory_target: bytes, or None for a quarter of the memory and at most 4 GiB.
        disks: cache directories.
    """

    part_size: int = DEFAULT_PART_SIZE
    memory_target: int | None = None
    gbps: float = DEFAULT_GBPS
    request_deadline_s: float = 60.0
    disks: int = 0


def size_components(limits: Limits, host: Host | None = None) -> tuple[CrtConfig, GuardConfig, ReadConfig]:
    """The sections whose sizes hang together.

    Args:
        host: None for this one.

    Raises:
        BadOption: a limit that cannot be kept.
    """
    if not MIN_PART_SIZE <= limits.part_size <= MAX_PART_SIZE:
        raise BadOption(f"--part-size must be between {format_size(MIN_PART_SIZE)} and {format_size(MAX_PART_SIZE)}")
    if not 0 < limits.gbps < math.inf:  # false for nan too
        raise BadOption("--maximum-throughput-gbps must be a number greater than 0")
    if limits.request_deadline_s <= 0:
        raise BadOption("--request-deadline must be greater than 0")
    host = host or this_host()
    target = default_memory_target(host) if limits.memory_target is None else limits.memory_target
    if target < MIN_MEMORY_TARGET:
        raise BadOption(f"--memory-target must be at least {format_size(MIN_MEMORY_TARGET)}")
    transit = max(target // _TRANSIT_SHARE, MIN_TRANSIT, 2 * limits.part_size) // MIB * MIB
    budget = target - transit - target // _HEAP_SHARE
    queue = _queue_bytes(budget, limits.disks)
    budget -= queue * limits.disks
    if limits.part_size > budget // 4:
        raise BadOption(
            f"--part-size {format_size(limits.part_size)} is more than a quarter of the read budget "
            f"({format_size(budget)}); lower it, or raise --memory-target"
        )
    if limits.disks and limits.part_size % CELL_SIZE:
        raise BadOption(f"--part-size must be a multiple of {format_size(CELL_SIZE)} with --cache")
    connections = min(max(_MIN_CONNECTIONS, round(limits.gbps * _CONNECTIONS_PER_GBPS)), _MAX_CONNECTIONS)
    crt = CrtConfig(connections, limits.part_size, min(max(1, math.ceil(host.cpus)), _MAX_CRT_THREADS), transit)
    guard = GuardConfig(limits.request_deadline_s, connections)
    return crt, guard, ReadConfig(limits.part_size, budget, target, queue)


def _queue_bytes(budget: int, disks: int) -> int:
    """What may wait to be written to each disk: at least one whole block."""
    return max(min(MAX_QUEUED, budget // _QUEUES_SHARE // disks), BLOCK_SIZE) if disks else 0


def metadata_config(
    ttl: TimeToLive | None, negative_ttl: TimeToLive | None, *, has_disk_cache: bool = False, is_rw: bool = False
) -> MetadataConfig:
    """Names that are not there are believed as long as those that are, unless that is said.

    Where everything may be written, other hosts write, too: their new names are seen within a second.
    """
    if ttl is None:
        ttl = _TTL_WITH_CACHE if has_disk_cache and not is_rw else MINIMAL
    if negative_ttl is None:
        negative_ttl = MINIMAL if is_rw else ttl
    return MetadataConfig(ttl, negative_ttl)


def default_memory_target(host: Host | None = None) -> int:
    """A quarter of the memory this process may use, between the minimum and 4 GiB; of this host if none is given."""
    usable = (host or this_host()).memory_bytes
    return min(max(usable // 4, MIN_MEMORY_TARGET), 4 * GIB)
