"""Who killed the daemon: no innocent call is ever denied, and no guilty one kills three."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.suspects import GUILTY_S, MAX_GUILTY, MAX_SUSPECTS, SUSPECT_S, Call, Suspects

CALLS = st.builds(Call, st.integers(1, 3), st.integers(1, 4), st.just(0), st.integers(0, 2))
READ = Call(9, 5, 0, 4096)


def convicted(call: Call, now: float = 0.0) -> Suspects:
    """The lists after a call killed two daemons."""
    suspects = Suspects()
    assert suspects.died([call], now) is None
    assert suspects.died([call], now) == call
    return suspects


@given(st.sets(CALLS, min_size=1, max_size=8), st.data())
def test_the_guilty_are_found_and_nobody_else(calls: set[Call], data: st.DataObject) -> None:
    """Whichever of the calls in flight kill: each kills at most two daemons, only kinds of theirs are denied, and every
    other call is answered in the end.
    """
    deadly = data.draw(st.sets(st.sampled_from(sorted(calls))))
    suspects, waiting, deaths = Suspects(), set(calls), 0
    while waiting:
        in_flight = serve(suspects, waiting, deadly, data)
        if in_flight:
            deaths += 1
            suspects.died(in_flight, now=0.0)
        suspects.check_invariants()
        assert {call for call, _ in suspects.guilty()} <= {call.kind for call in deadly}
    assert deaths <= 2 * len(deadly)
    assert not list(suspects.suspects())


def serve(suspects: Suspects, waiting: set[Call], deadly: set[Call], data: st.DataObject) -> set[Call]:
    """One daemon: it takes suspects and the others by turns; returns what was in flight at its death, if it died."""
    for call in [call for call in waiting if suspects.is_guilty(call)]:
        waiting.discard(call)  # answered with an error
    turns: list[set[Call]] = [{call} for call in sorted(waiting) if suspects.is_suspect(call)]
    turns.append({call for call in waiting if not suspects.is_suspect(call)})
    for turn in data.draw(st.permutations(turns)):
        if turn & deadly:
            return turn
        for call in turn:
            suspects.answered(call)
        waiting -= turn
    return set()


def test_two_deaths_and_a_denial() -> None:
    """A call that was alone in flight at two deaths is guilty, and so are all offsets of its kind; others are not."""
    suspects = convicted(READ)
    assert suspects.is_guilty(READ)
    assert suspects.is_guilty(READ._replace(offset=0))
    assert not suspects.is_guilty(READ._replace(subject=6))
    assert not suspects.is_guilty(READ._replace(operation=8))


def test_a_name_is_denied_by_itself() -> None:
    """A look-up that is guilty does not deny other names of the directory."""
    suspects = convicted(Call(1, 1, name=77))
    assert not suspects.is_guilty(Call(1, 1, name=78))


def test_one_death_denies_nobody() -> None:
    """After one death a call is handled, alone; when it was answered it is a call like any other."""
    suspects = Suspects()
    suspects.died([READ], 0.0)
    assert suspects.is_suspect(READ)
    assert not suspects.is_guilty(READ)
    suspects.answered(READ)
    assert not suspects


def test_who_was_not_alone_is_not_guilty() -> None:
    """A suspect that dies together with a call that came later may be innocent: both are tried again."""
    later = READ._replace(subject=6)
    suspects = Suspects()
    suspects.died([READ], 0.0)
    assert suspects.died([READ, later], 0.0) is None
    assert suspects.is_suspect(READ)
    assert suspects.is_suspect(later)


def test_a_death_in_no_call_says_nothing() -> None:
    """A thread that dies while nobody asks for anything leaves the lists as they are."""
    suspects = Suspects()
    suspects.died([READ], 0.0)
    assert suspects.died([], 1.0) is None
    assert [call for call, _ in suspects.suspects()] == [READ]


def test_time_heals() -> None:
    """A suspect is forgotten after a minute, a guilty call after ten."""
    suspects = convicted(READ)
    other = Call(8, 3)
    suspects.died([other], 0.0)
    suspects.expire(SUSPECT_S - 1)
    assert suspects.is_suspect(other)
    suspects.expire(SUSPECT_S)
    assert not suspects.is_suspect(other)
    suspects.expire(GUILTY_S - 1)
    assert suspects.is_guilty(READ)
    suspects.expire(GUILTY_S)
    assert not suspects


def test_the_lists_have_an_end() -> None:
    """However many calls kill, the newest are kept, and no more than there is room for."""
    suspects = Suspects()
    suspects.died([Call(1, subject) for subject in range(MAX_SUSPECTS + 10)], 0.0)
    for subject in range(MAX_GUILTY + 10):
        suspects.died([Call(8, subject)], 0.0)
        suspects.died([Call(8, subject)], 0.0)
        suspects.check_invariants()
    assert suspects.statistics().guilty == MAX_GUILTY
    assert suspects.is_guilty(Call(8, MAX_GUILTY + 9))
    assert not suspects.is_guilty(Call(8, 0))


@pytest.mark.parametrize("broken", [([(READ._replace(offset=0), 1.0)], [(READ.kind, 1.0)])])
def test_check_invariants_finds_a_broken_list(
    broken: tuple[list[tuple[Call, float]], list[tuple[Call, float]]],
) -> None:
    """A call on both lists is found."""
    with pytest.raises(ValueError, match="suspect and guilty"):
        Suspects(*broken).check_invariants()
