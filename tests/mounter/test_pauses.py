"""How daemons that die at once are started less and less often."""

from s3mount.mounter.pauses import Pauses


def test_daemons_that_worked_are_replaced_at_once() -> None:
    """However often one dies that served for a second, the next comes at once."""
    pauses = Pauses()
    assert [pauses.after(1.0) for _ in range(100)] == [0.0] * 100


def test_daemons_that_die_at_once() -> None:
    """Two are replaced at once, then the pause doubles from 1 s to a minute, and stays there."""
    pauses = Pauses()
    assert [pauses.after(0.0) for _ in range(10)] == [0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert [pauses.after(0.9) for _ in range(2000)] == [60.0] * 2000


def test_one_that_worked_begins_anew() -> None:
    """After one that served there are two at once again."""
    pauses = Pauses()
    for _ in range(6):
        pauses.after(0.0)
    assert [pauses.after(each) for each in (5.0, 0.0, 0.0, 0.0)] == [0.0, 0.0, 0.0, 1.0]
