"""What GETs say about the distance, and which objects count as being read."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from s3mount.core.attrs import ObjectId
from s3mount.core.distance import Distance
from s3mount.fs.activity import RECENT_S, Activity
from s3mount.fs.pace import START, Pace
from s3mount.units import KIB, MIB


def test_the_start_is_a_region_away() -> None:
    """Before any GET, 30 ms and 90 MB/s: 128 KiB for a random read."""
    assert Pace().distance == START == Distance(0.030, 90e6)
    assert START.unit == 128 * KIB


@pytest.mark.parametrize(("latency_s", "bytes_per_s"), [(0.001, 500e6), (0.020, 90e6), (0.150, 30e6)])
def test_small_and_large_gets_tell_the_distance(latency_s: float, bytes_per_s: float) -> None:
    """From GETs of both kinds, some of them slow, both numbers are known within a fifth."""
    pace = Pace()
    dice = random.Random(1)
    for _ in range(100):
        n_bytes = dice.choice([4 * KIB, 128 * KIB, 8 * MIB])
        delay_s = dice.choice([0, 0, 0, 0.5 * latency_s])
        pace.note(n_bytes, latency_s + n_bytes / bytes_per_s + delay_s)
    assert pace.distance.latency_s == pytest.approx(latency_s, rel=0.2)
    assert pace.distance.bytes_per_s == pytest.approx(bytes_per_s, rel=0.2)


def test_a_change_is_noticed() -> None:
    """When S3 comes to be farther, 32 GETs later the old distance is forgotten."""
    pace = Pace()
    for _ in range(50):
        pace.note(4 * KIB, 0.001)
    for _ in range(32):
        pace.note(4 * KIB, 0.040)
    assert pace.distance.latency_s == pytest.approx(0.040, rel=0.1)


@given(st.lists(st.tuples(st.integers(1, 16 * MIB), st.floats(0, 100)), max_size=80))
@example([(8 * MIB, 0.0)])
@example([(8 * MIB, 5e-324), (4 * KIB, 0.0)])
def test_a_distance_is_always_sane(gets: list[tuple[int, float]]) -> None:
    """Whatever the times, L is not negative and b is positive."""
    pace = Pace()
    for n_bytes, took_s in gets:
        pace.note(n_bytes, took_s)
        assert pace.distance.latency_s >= 0
        assert pace.distance.bytes_per_s > 0
        assert pace.distance.unit >= 64 * KIB


def test_only_recent_reads_count() -> None:
    """An object counts from a read on for two seconds, and not after its last handle is gone."""
    activity = Activity()
    one, other, third = (ObjectId(key, '"1"') for key in "abc")
    assert activity.note(one, 10.0) == 1
    assert activity.note(other, 11.0) == 2
    assert activity.note(one, 11.5) == 2
    assert activity.note(third, 11.0 + RECENT_S + 0.1) == 2
    activity.forget(one)
    assert activity.note(third, 14.0) == 1
