"""Whether S3 is away: driven by any sequence of answers, failures and requests."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from s3mount.core.outage import Outage, OutageStatistics

CHANCES = st.floats(0, 1)


class OutageMachine(RuleBasedStateMachine):
    """Against a model that remembers what happened since the last answer."""

    def __init__(self) -> None:
        super().__init__()
        self.outage = Outage()
        self.now = 0.0
        self.answered_at = 0.0
        self.failures = 0
        self.is_told = False
        self.probed_at = -1.0

    @rule(seconds=st.floats(0, 20))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(chance=CHANCES, is_refusal=st.booleans())
    def a_request_fails(self, chance: float, is_refusal: bool) -> None:  # noqa: FBT001
        self.outage.failed(self.now, self.now, chance, is_refusal=is_refusal)
        self.failures += not is_refusal

    @rule()
    def an_answer_comes(self) -> None:
        lasted_s = self.outage.answered(self.now)
        assert (lasted_s is not None) == self.is_told
        assert lasted_s is None or lasted_s >= 5.0
        self.answered_at, self.failures, self.is_told = self.now, 0, False
        assert not self.outage.is_closed

    @precondition(lambda self: self.outage.is_closed and self.now >= self.outage.probe_at)
    @rule(chance=CHANCES)
    def a_probe_goes(self, chance: float) -> None:
        self.outage.probe(self.now, chance)
        assert 0.05 <= self.outage.probe_at - self.now <= 5.0

    @rule()
    def somebody_looks(self) -> None:
        lasted_s = self.outage.notice(self.now)
        if lasted_s is not None:
            assert not self.is_told
            assert 5.0 <= lasted_s <= self.now - self.answered_at
            self.is_told = True

    @invariant()
    def five_failures_in_a_row_close_it(self) -> None:
        assert self.outage.is_closed == (self.failures >= 5)
        assert not self.outage.is_closed or self.outage.probe_at - self.now <= 5.0
        self.outage.check_invariants()


TestOutage = OutageMachine.TestCase


def test_the_silence_counts_from_the_question() -> None:
    """A request that got no answer for a minute is a minute of silence when it fails."""
    outage = Outage()
    outage.failed(100.0, 160.0, 0.5, is_refusal=False)
    assert outage.notice(160.0) == 60.0
    assert outage.notice(161.0) is None
    assert outage.answered(165.0) == 65.0
    assert outage.notice(300.0) is None


def test_failures_far_apart_are_two_matters() -> None:
    """One failure an hour ago and one now are no hour without an answer."""
    outage = Outage()
    outage.failed(0.0, 1.0, 0.5, is_refusal=False)
    outage.failed(3600.0, 3601.0, 0.5, is_refusal=False)
    assert outage.notice(3601.0) is None
    assert outage.since == 3600.0


def test_throttling_ends_and_closes_nothing_and_is_told() -> None:
    """S3 that refuses everything for 5 s is worth a line; the rate is another module's."""
    outage = Outage()
    for second in range(6):
        outage.failed(float(second), float(second), 0.5, is_refusal=True)
        assert not outage.is_closed
    assert outage.notice(5.0) == 5.0


def test_probes_follow_each_other_ever_later() -> None:
    """0.1 s, doubled up to 5 s; from the start again in the next outage."""
    for times in (1, 2):
        outage = Outage() if times == 1 else outage  # noqa: F821
        for _ in range(5):
            outage.failed(0.0, 0.0, 1.0, is_refusal=False)
        distances = [outage.probe_at]
        for _ in range(8):
            now = outage.probe_at
            outage.probe(now, 1.0)
            distances.append(outage.probe_at - now)
        assert distances == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])
        assert outage.statistics() == OutageStatistics(is_closed=True, times=times, probes=8 * times)
        outage.answered(0.0)
