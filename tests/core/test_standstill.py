"""Pauses: when a disk is left alone, probed and used again."""

from s3mount.core.standstill import Outage, Slowness


def test_one_failure_is_no_outage() -> None:
    """A disk is taken for gone after three failures in a row, not after failures among successes."""
    outage = Outage()
    for _ in range(5):
        outage.note(0, is_good=False)
        outage.note(0, is_good=False)
        outage.note(0, is_good=True)
    assert not outage.is_on
    for _ in range(3):
        outage.note(0, is_good=False)
    assert outage.is_on
    assert not outage.lets_through(0.9)


def test_one_probe_at_a_time() -> None:
    """After the pause one operation is let through; the others wait for what it finds."""
    outage = Outage()
    for _ in range(3):
        outage.note(0, is_good=False)
    assert [outage.lets_through(1.0) for _ in range(3)] == [True, False, False]
    outage.note(1.1, is_good=True)
    assert not outage.is_on
    assert outage.lets_through(1.1)


def test_pauses_grow_to_a_minute() -> None:
    """Each failed probe doubles the pause, up to a minute; what ends late without being a probe does not."""
    outage = Outage()
    for _ in range(20):
        outage.note(0, is_good=False)
    now, pauses = 0.0, []
    for _ in range(9):
        began = now
        while not outage.lets_through(now):
            now += 0.5
        pauses.append(now - began)
        outage.note(now, is_good=False)
        outage.note(now, is_good=False)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_probe_that_never_ends_is_followed_by_another() -> None:
    """A probe that is cancelled does not end all probing."""
    outage = Outage()
    for _ in range(3):
        outage.note(0, is_good=False)
    assert outage.lets_through(1.0)
    assert not outage.lets_through(2.9)
    assert outage.lets_through(3.1)


def test_a_slow_disk_is_left_alone() -> None:
    """Reads slower than S3 end reading from the disk, one slow read does not, and a fast probe begins it again."""
    slow = Slowness()
    for _ in range(50):
        slow.note(0.001, 0.030, 0)
    slow.note(0.200, 0.030, 0)
    assert slow.lets_through(0)
    for _ in range(20):
        slow.note(0.060, 0.030, 0)
    assert slow.is_on
    assert not slow.lets_through(0.5)
    assert slow.lets_through(1.5)
    slow.note(0.060, 0.030, 1.5)
    assert not slow.lets_through(3.0)
    assert slow.lets_through(3.6)
    slow.note(0.001, 0.030, 3.6)
    assert slow.lets_through(3.6)
    assert not slow.is_on


def test_without_a_comparison_no_disk_is_slow() -> None:
    """A caller who does not say what S3 takes waits for any disk; one whom S3 takes no time waits for none."""
    patient, hasty = Slowness(), Slowness()
    for _ in range(20):
        patient.note(100.0, float("inf"), 0)
        hasty.note(0.001, 0.0, 0)
    assert not patient.is_on
    assert hasty.is_on
