"""The rate that S3's refusals teach: the table of the module, and mounts that share one server."""

import heapq
import itertools
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.send_rate import RateStatistics, SendRate


def limited(good: int, over_s: float = 1.0) -> SendRate:
    """A rate whose first refusals, enough of them, come at `over_s`, after so many good answers."""
    rate = SendRate()
    rate.answered(0.0)
    for _ in range(good - 1):
        rate.answered(over_s * 0.9)
    while not rate.is_limited:
        rate.refused(over_s * 0.99)
    return rate


def test_without_a_refusal_there_is_no_limit() -> None:
    """Any number of requests may go at any moment."""
    rate = SendRate()
    for number in range(10_000):
        now = number / 5000
        assert rate.turn_at(now) == now
        rate.sent(now)
        rate.answered(now)
    assert not rate.is_limited
    assert rate.statistics() == RateStatistics(0.0, 0)


def test_the_first_refusal_sets_what_came_well() -> None:
    """100 answers in a second: a request each 10 ms from then on."""
    rate = limited(100)
    assert rate.is_limited
    assert rate.statistics().per_s == pytest.approx(100 / 0.99)
    turns = []
    for _ in range(3):
        turns.append(rate.turn_at(0.99))
        rate.sent(turns[-1])
    assert turns == pytest.approx([0.99, 0.9999, 1.0098])


def test_an_interval_with_refusals_is_cut_to_what_came() -> None:
    """Nine tenths of the good answers, and ten."""
    rate = limited(100)
    rate.turn_at(1.0)
    assert rate.statistics() == RateStatistics(pytest.approx(0.9 * 100 + 10), 4)
    for _ in range(50):
        rate.answered(1.5)
    rate.refused(1.6)
    rate.refused(1.6)
    rate.turn_at(3.0)
    assert rate.statistics() == RateStatistics(pytest.approx(0.9 * 50 / 2 + 10), 6)


def test_quiet_intervals_grow_faster_and_faster_if_the_rate_is_used() -> None:
    """By a quarter, a half, and then double; not at all while less than half of it was sent."""
    rate = limited(100)
    now, seen = 1.0, []
    rate.turn_at(now)
    for _ in range(4):
        for _ in range(2000):
            rate.sent(now)
        now += 1.0
        rate.turn_at(now)
        seen.append(rate.statistics().per_s)
    assert [after / before for before, after in itertools.pairwise(seen)] == pytest.approx([1.5, 2.0, 2.0])
    rate.turn_at(now + 1.0)
    assert rate.statistics().per_s == seen[-1]


def test_a_server_that_refuses_now_and_then_is_not_full() -> None:
    """One refusal in a hundred sets no limit, and lets one that was set grow and be forgotten."""
    free, held = SendRate(), limited(100)
    for second in range(1, 40):
        for number in range(100):
            for rate in (free, held):
                now = second + number / 200
                rate.turn_at(now)
                rate.sent(now)
                rate.answered(now)
        free.refused(second + 0.9)
        held.refused(second + 0.9)
        assert not free.is_limited
        assert held.is_limited == (second <= 30)
        assert not held.is_limited or second < 3 or held.statistics().per_s >= 90 + 10 * second


def test_half_a_minute_of_peace_lifts_the_limit() -> None:
    """Whether anything was sent meanwhile or not."""
    rate = limited(100)
    assert rate.turn_at(30.0) < 31
    assert rate.is_limited
    assert rate.turn_at(31.0) == 31.0
    assert not rate.is_limited


@given(st.lists(st.tuples(st.sampled_from(["sent", "answered", "refused"]), st.floats(0, 3)), max_size=200))
def test_a_recovering_server_is_always_asked(events: list[tuple[str, float]]) -> None:
    """Whatever happened, the next turn is no further away than what was sent at ten a second."""
    rate, now, sent = SendRate(), 0.0, 0
    for what, seconds in events:
        now += seconds
        assert rate.turn_at(now) >= now
        getattr(rate, what)(now)
        sent += what == "sent"
        assert rate.turn_at(now) - now <= sent / 10 + 1e-6
        rate.check_invariants()


def shared(mounts: int, per_s: float, burst: int, seed: int) -> list[int]:
    """Good answers of each mount from the 10th to the 30th second behind one server, whose capacity varies a little."""
    chance = random.Random(seed).random
    rates, good = [SendRate() for _ in range(mounts)], [0] * mounts
    tokens, filled_at = float(burst), 0.0
    turns = [(chance() / 100, number) for number in range(mounts)]
    while turns[0][0] < 30:
        now, number = heapq.heappop(turns)
        tokens, filled_at = min(burst, tokens + (now - filled_at) * per_s * 2 * chance()), now
        rate = rates[number]
        rate.sent(now)
        if tokens >= 1:
            tokens -= 1
            rate.answered(now)
            good[number] += now > 10
        else:
            rate.refused(now)
        # at least 1 ms between two requests of a mount: its own limit
        heapq.heappush(turns, (max(rate.turn_at(now), now + 0.001 * (0.5 + chance())), number))
    return good


@pytest.mark.parametrize("mounts", [2, 3, 4])
def test_mounts_that_do_not_know_each_other_share(mounts: int) -> None:
    """Of ten servers they get nine tenths on average, the least 0.7 of the most, and never less than a third of it."""
    seen = []
    for seed in range(10):
        per_s = 100.0 + 40 * seed
        good = shared(mounts, per_s, 5 + 5 * seed, seed)
        seen.append((sum(good) / 20 / per_s, min(good) / max(good)))
    assert statistics.mean(of_server for of_server, _ in seen) >= 0.9
    assert statistics.mean(share for _, share in seen) >= 0.7
    assert min(share for _, share in seen) >= 1 / 3
