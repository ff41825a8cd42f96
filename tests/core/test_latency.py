"""Histograms whose buckets double, and what is told of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.latency import SHOWN, LatencyHistogram, added, quantile, upper_bound_s

durations = st.lists(st.integers(0, 2**62), max_size=50)


@given(durations)
def test_every_duration_is_in_its_bucket(noted: list[int]) -> None:
    """A duration is counted below the end of its bucket and not below half of that; the last one has all the rest."""
    histogram = LatencyHistogram()
    for duration in noted:
        histogram.note(duration)
    found = histogram.statistics()
    histogram.check_invariants()
    assert found.count == len(noted) == sum(found.buckets)
    assert found.seconds == pytest.approx(sum(noted) / 1e9)
    assert len(found.buckets) == SHOWN
    for bucket, count in enumerate(found.buckets[:-1]):
        start = upper_bound_s(bucket - 1) if bucket else 0.0
        in_it = [each for each in noted if start <= each / 1e9 < upper_bound_s(bucket)]
        assert count == len(in_it)


@given(durations.filter(bool), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_right_within_its_bucket(noted: list[int], share: float) -> None:
    """A quantile lies in the bucket of the duration that it stands for."""
    histogram = LatencyHistogram()
    noted = [each % 10**11 for each in noted]  # two minutes are the last bucket's start
    for duration in noted:
        histogram.note(duration)
    told = quantile(histogram.statistics().buckets, share)
    rank = next(number for number in range(1, len(noted) + 1) if number >= share * len(noted))
    exact = sorted(noted)[rank - 1]
    bucket = (exact >> 10).bit_length()
    assert (upper_bound_s(bucket - 1) if bucket else 0.0) <= told <= upper_bound_s(bucket)


def test_quantiles_within_a_bucket() -> None:
    """What lies in one bucket is taken to lie evenly in it."""
    assert quantile([0, 0, 0, 4], 0.5) == pytest.approx((upper_bound_s(2) + upper_bound_s(3)) / 2)
    assert quantile([4], 0.25) == pytest.approx(upper_bound_s(0) / 4)


def test_nothing_has_no_quantile() -> None:
    """Of nothing a quantile is 0."""
    assert quantile(LatencyHistogram().statistics().buckets, 0.5) == 0.0


def test_several_sources_are_counted_together() -> None:
    """What two clocks counted of one operation adds up, bucket by bucket."""
    one, other, both = LatencyHistogram(), LatencyHistogram(), LatencyHistogram()
    for histogram, duration_ns in ((one, 5), (one, 10**9), (other, 10**9), (other, 3 * 10**12)):
        histogram.note(duration_ns)
        both.note(duration_ns)
    assert added([one.statistics(), other.statistics()]) == both.statistics()


def test_a_negative_duration_is_noticed() -> None:
    """The invariant fails when time ran backwards."""
    histogram = LatencyHistogram()
    histogram.note(-(2**40))
    with pytest.raises(ValueError, match="negative"):
        histogram.check_invariants()
