"""The sizes of a mount: how the memory target is shared, and what is refused."""

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.config import (
    MAX_PART_SIZE,
    MIN_MEMORY_TARGET,
    MIN_PART_SIZE,
    Limits,
    default_memory_target,
    size_components,
)
from s3mount.errors import BadOption
from s3mount.limits import Host
from s3mount.store.transit import MIN_TRANSIT
from s3mount.units import GIB, MIB

PLAIN = Limits(memory_target=GIB)


@given(
    st.integers(MIN_PART_SIZE, 64 * MIB),
    st.integers(MIN_MEMORY_TARGET, 64 * GIB),
    st.floats(0.001, 10_000),
    st.floats(0.001, 1e6),
)
def test_sizes_hang_together(part_size: int, memory_target: int, gbps: float, deadline_s: float) -> None:
    """Whatever is accepted keeps within its target, and lets at least four parts be in flight."""
    try:
        crt, guard, read = size_components(Limits(part_size, memory_target, gbps, deadline_s))
    except BadOption as error:
        assert "more than a quarter of the read budget" in str(error)  # noqa: PT017  most examples do not raise
        left = memory_target * 7 // 8 - max(memory_target // 4, MIN_TRANSIT, 2 * part_size)
        assert part_size > left // 4 - MIB
        return
    assert read.part_size == crt.part_size == part_size
    assert read.memory_target == memory_target
    assert 4 * part_size <= read.budget_bytes
    assert max(MIN_TRANSIT, 2 * part_size) <= crt.transit_bytes
    assert read.budget_bytes + crt.transit_bytes <= memory_target * 7 // 8 + 1
    assert 128 <= crt.connections == guard.max_gets <= 1024
    assert guard.deadline_s == deadline_s
    assert 1 <= crt.threads <= 4


@pytest.mark.parametrize(
    ("target", "transit", "budget"),
    [
        (256 * MIB, 128 * MIB, 96 * MIB),
        (512 * MIB, 128 * MIB, 320 * MIB),
        (GIB, 256 * MIB, 640 * MIB),
        (4 * GIB, GIB, 2560 * MIB),
    ],
)
def test_how_the_target_is_shared(target: int, transit: int, budget: int) -> None:
    """A quarter is for what is on its way, an eighth for the heap's holes, the rest for what is held."""
    crt, _, read = size_components(replace(PLAIN, memory_target=target))
    assert (crt.transit_bytes, read.budget_bytes) == (transit, budget)


@pytest.mark.parametrize(("gbps", "connections"), [(0.1, 128), (10, 128), (51.2, 128), (100, 250), (4000, 1024)])
def test_connections(gbps: float, connections: int) -> None:
    """Small files need 128 requests at once on any network; a faster one gets more, up to 1,024."""
    assert size_components(replace(PLAIN, gbps=gbps))[0].connections == connections


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"part_size": MIN_PART_SIZE - 1}, "--part-size must be between 5 MiB and 5 GiB"),
        ({"part_size": MAX_PART_SIZE + 1}, "--part-size must be between 5 MiB and 5 GiB"),
        ({"part_size": 200 * MIB}, "--part-size 200 MiB is more than a quarter of the read budget (496 MiB)"),
        ({"memory_target": MIN_MEMORY_TARGET - 1}, "--memory-target must be at least 256 MiB"),
        ({"memory_target": 0}, "--memory-target must be at least 256 MiB"),
        ({"gbps": 0.0}, "--maximum-throughput-gbps must be"),
        ({"gbps": -1.0}, "--maximum-throughput-gbps must be"),
        ({"gbps": float("nan")}, "--maximum-throughput-gbps must be"),
        ({"gbps": float("inf")}, "--maximum-throughput-gbps must be"),
        ({"request_deadline_s": 0.0}, "--request-deadline must be greater than 0"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_refusals(change: dict[str, float], says: str) -> None:
    """A limit that cannot be kept is named with the bound it misses."""
    with pytest.raises(BadOption) as raised:
        size_components(replace(PLAIN, **change))
    assert says in str(raised.value)


def test_the_smallest_and_the_largest_part() -> None:
    """The bounds themselves are allowed, where the memory is."""
    assert size_components(replace(PLAIN, part_size=MIN_PART_SIZE))[2].part_size == MIN_PART_SIZE
    vast = replace(PLAIN, part_size=MAX_PART_SIZE, memory_target=64 * GIB)
    assert size_components(vast)[2].part_size == MAX_PART_SIZE


def test_default_memory_target() -> None:
    """Without a flag: at most a quarter of this machine's memory and 4 GiB, and never below the minimum."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    target = default_memory_target()
    assert MIN_MEMORY_TARGET <= target <= max(MIN_MEMORY_TARGET, min(physical // 4, 4 * GIB))
    assert size_components(Limits()) == size_components(Limits(memory_target=target))


@pytest.mark.parametrize(
    ("memory", "target"),
    [
        (64 * MIB, MIN_MEMORY_TARGET),
        (GIB, MIN_MEMORY_TARGET),
        (2 * GIB, 512 * MIB),
        (16 * GIB, 4 * GIB),
        (1024 * GIB, 4 * GIB),
    ],
)
def test_the_default_is_a_quarter_of_what_the_process_may_use(memory: int, target: int) -> None:
    """A container's or a unit's limit counts, not the host's memory; the bounds hold for any."""
    host = Host(memory, 8.0)
    assert default_memory_target(host) == target
    assert size_components(Limits(), host) == size_components(Limits(memory_target=target), host)


@pytest.mark.parametrize(("cpus", "threads"), [(0.1, 1), (1.0, 1), (1.5, 2), (2.0, 2), (4.0, 4), (192.0, 4)])
def test_threads_of_the_crt(cpus: float, threads: int) -> None:
    """As many as there is processor time for, and never more than four."""
    assert size_components(PLAIN, Host(GIB, cpus))[0].threads == threads
