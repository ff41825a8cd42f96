"""What a wait is made of: pure arithmetic on intervals."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.waits import Arrival, WaitLedger, WaitSeconds

#: Started at 10, had a connection at 11, first byte at 13, last byte at 17.
GET = Arrival(sent_at=11.0, first_byte_at=13.0, last_byte_at=17.0)
times = st.floats(0, 100)
marks = st.one_of(times, st.just(math.inf))


def waited(since: float, until: float, arrival: Arrival) -> WaitSeconds:
    ledger = WaitLedger()
    ledger.add_get(since, until, arrival)
    ledger.check_invariants()
    return ledger.seconds()


@pytest.mark.parametrize(
    ("since", "until", "seconds"),
    [
        (10.0, 20.0, WaitSeconds(connection=1, first_byte=2, transfer=4, loop=3)),
        (10.0, 17.0, WaitSeconds(connection=1, first_byte=2, transfer=4)),
        (12.5, 17.0, WaitSeconds(first_byte=0.5, transfer=4)),
        (16.0, 17.5, WaitSeconds(transfer=1, loop=0.5)),
        (17.0, 17.0, WaitSeconds()),
        (18.0, 18.25, WaitSeconds(loop=0.25)),
        (10.0, 10.5, WaitSeconds(connection=0.5)),
        (11.5, 12.0, WaitSeconds(first_byte=0.5)),
    ],
)
def test_a_reader_waits_for_what_the_get_does_meanwhile(since: float, until: float, seconds: WaitSeconds) -> None:
    """Whenever it comes and gives up, its wait is cut where the GET's phases change."""
    assert waited(since, until, GET) == seconds


@pytest.mark.parametrize(
    ("arrival", "seconds"),
    [
        (Arrival(math.inf), WaitSeconds(connection=8)),
        (Arrival(12.0), WaitSeconds(connection=2, first_byte=6)),
        (Arrival(0.0), WaitSeconds(first_byte=8)),
        (Arrival(12.0, 14.0), WaitSeconds(connection=2, first_byte=2, transfer=4)),
        (Arrival(12.0, last_byte_at=14.0), WaitSeconds(connection=2, first_byte=2, loop=4)),
        (Arrival(10.0, disk_until=math.inf), WaitSeconds(disk=8)),
        (Arrival(12.0, disk_until=12.0), WaitSeconds(disk=2, first_byte=6)),
        (
            Arrival(13.0, 14.0, 17.0, disk_until=12.0),
            WaitSeconds(disk=2, connection=1, first_byte=1, transfer=3, loop=1),
        ),
        (Arrival(10.0, last_byte_at=12.0, disk_until=12.0, is_from_disk=True), WaitSeconds(disk=2, loop=6)),
    ],
)
def test_a_mark_that_is_missing_is_not_reached(arrival: Arrival, seconds: WaitSeconds) -> None:
    """A GET that failed, or still runs when its reader gives up, is in the phase it had reached."""
    assert waited(10.0, 18.0, arrival) == seconds


@given(times, times, marks, marks, marks, st.one_of(marks, st.just(-math.inf)))
def test_the_causes_add_up_to_the_wait(
    since: float, more: float, sent: float, first: float, last: float, disk: float
) -> None:
    """Whatever marks there are, in whatever order, no second is lost or counted twice, and none is negative."""
    seconds = waited(since, since + more, Arrival(sent, first, last, disk))
    assert seconds.total == pytest.approx(more)


def test_readers_add_up() -> None:
    """Each reader's wait counts, of every kind."""
    ledger = WaitLedger()
    ledger.add_budget(1.5)
    ledger.add_names(0.25)
    ledger.add_disk(0.5)
    for _ in range(3):
        ledger.add_get(10.0, 20.0, GET)
    assert ledger.seconds() == WaitSeconds(
        names=0.25, budget=1.5, disk=0.5, connection=3, first_byte=6, transfer=12, loop=9
    )
    assert ledger.seconds().total == 32.25


def test_a_negative_wait_is_a_bug() -> None:
    """check_invariants raises when a clock went back."""
    ledger = WaitLedger()
    ledger.add_budget(-1.0)
    with pytest.raises(ValueError, match="negative"):
        ledger.check_invariants()


def test_people_read_the_longest_first() -> None:
    """One line: the total, then what counts, to a tenth of a second."""
    seconds = WaitSeconds(names=0.04, first_byte=9.1, transfer=2.22, loop=0.9)
    assert str(seconds) == "12.3 s: 9.1 first byte, 2.2 transfer, 0.9 loop"
    assert str(WaitSeconds()) == "0.0 s"
