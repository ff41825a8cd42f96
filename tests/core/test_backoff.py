"""When a request is asked again: how often at most, for how long at most, and what is the last time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.backoff import Patience, jittered, next_step

CHANCES = st.floats(0, 1)
TIMES = st.floats(0, 1e6)


def run(
    patience: Patience, took_s: list[float], chances: list[float], began_at: float = 0.0
) -> tuple[int, list[bool], float]:
    """A request that fails each time, after `took_s` seconds each: attempts, which were the last, and the end."""
    now = began_at + took_s[0]
    failed_at, attempts, marks = now, 1, []
    while step := next_step(patience, began_at, failed_at, attempts, now, chances[attempts % len(chances)]):
        assert step.at >= now
        marks.append(step.is_last)
        now = step.at + took_s[attempts % len(took_s)]
        attempts += 1
    return attempts, marks, now


@given(st.integers(1, 20), st.lists(CHANCES, min_size=1), TIMES)
def test_error_makes_its_attempts_and_no_more(max_attempts: int, chances: list[float], began_at: float) -> None:
    """Quick failures: exactly as many attempts as allowed, the last of which is known as such."""
    attempts, marks, _ = run(Patience(1e9, 0.0, max_attempts), [0.0], chances, began_at)
    assert attempts == max_attempts
    assert marks == [False] * (max_attempts - 2) + [True] * (max_attempts > 1)


@given(st.floats(0.5, 500), st.lists(CHANCES, min_size=1), TIMES)
def test_wait_asks_until_the_window_is_over(window_s: float, chances: list[float], began_at: float) -> None:
    """Quick failures: the last attempt is made when the window ends, and is the only one called so."""
    chances = [max(each, 0.1) for each in chances]
    attempts, marks, end = run(Patience(60.0, window_s, 1), [0.0], chances, began_at)
    assert end == pytest.approx(began_at + window_s)
    assert marks[-1]
    assert not any(marks[:-1])
    assert attempts > 1


@given(
    st.floats(1, 100), st.one_of(st.just(0.0), st.floats(1, 200)), st.integers(1, 20),
    st.lists(st.floats(0.1, 100), min_size=1), st.lists(CHANCES, min_size=1),
)  # fmt: skip
def test_nothing_is_asked_after_deadline_and_window(
    deadline_s: float, window_s: float, max_attempts: int, took_s: list[float], chances: list[float]
) -> None:
    """However long attempts take, none begins later than the whole request may last."""
    patience = Patience(deadline_s, window_s, max_attempts)
    took_s = [min(each, deadline_s) for each in took_s]
    _, _, end = run(patience, took_s, chances)
    assert end <= patience.total_s + deadline_s


@pytest.mark.parametrize("attempts", range(1, 30))
def test_the_time_doubles_up_to_five_seconds(attempts: int) -> None:
    """From nothing to all of 0.1 s doubled for each failure, as chance has it."""
    patience = Patience(1e9, 0.0, 100)
    longest = min(0.1 * 2 ** (attempts - 1), 5.0)
    for chance in (0.0, 0.5, 1.0):
        step = next_step(patience, 0.0, 7.0, attempts, 7.0, chance)
        assert step is not None
        assert step.at - 7.0 == pytest.approx(longest * chance)


@given(st.integers(0, 1000), CHANCES)
def test_probes_keep_a_distance(doublings: int, chance: float) -> None:
    """Never less than half of the time that doubles, never more than 5 s."""
    longest = min(0.1 * 2 ** min(doublings, 10), 5.0)
    assert longest / 2 <= jittered(doublings, chance) <= longest
