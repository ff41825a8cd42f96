"""What the reading benchmark makes of its measurements: traffic, ratios and verdicts."""

import pytest

from benchmarks.reading.table import Row, Table
from benchmarks.reading.traffic import Traffic, add_up


def test_traffic_is_counted_by_kind() -> None:
    """HEAD, LIST and GET are told apart, and only the bytes of GETs are content."""
    assert add_up([
        "HEAD 200 0 /b/k - 10.000 0.001",
        "GET 200 900 /b/?list-type=2&prefix=x - 11.000 0.002",
        "GET 206 100 /b/k bytes=0-99 12.000 0.500",
        "GET 206 300 /b/k bytes=100-399 13.000 0.500",
    ]) == Traffic(gets=2, heads=1, lists=1, n_bytes=400, largest=300, at_once=1)  # fmt: skip


def test_requests_at_once_are_those_that_overlap() -> None:
    """GETs are beside each other where they overlap, not where one begins in the millisecond in which another ends."""
    lines = [
        "GET 206 1 /k - 1795988134.654 0.500",
        "GET 206 1 /k - 1795988134.600 0.500",
        "GET 206 1 /k - 1795988135.567 0.913",  # begins at .654; as a difference of floats a little earlier
    ]
    assert add_up(lines).at_once == 2
    assert add_up([lines[0], lines[2]]).at_once == 1


@pytest.mark.parametrize(
    ("value", "busy", "verdict"),
    [(0.9, 0.1, "met"), (0.5, 0.1, "MISSED"), (0.5, 1.0, "missed, CPU full"), (None, 1.0, "not measured")],
)
def test_a_miss_is_excused_by_a_full_cpu_only(value: float | None, busy: float, verdict: str) -> None:
    """A row that was not measured never passes, and one that missed says whether the machine was full."""
    row = Row("p", "what", "s3mount")
    row.note(of_raw=value, machine_busy=busy)
    row.at_least("of_raw", 0.8, until_cpu_full=True)
    row.at_least("of_raw", 0.8)
    excusable, plain = row.aims
    assert row.verdict(excusable) == verdict
    assert row.verdict(plain) == ("MISSED" if verdict.startswith("missed") else verdict)


def test_a_ratio_is_made_repeat_by_repeat() -> None:
    """The median of ratios is that of pairs that were measured together."""
    table = Table()
    ours, raw = table.row("p", "what", "s3mount"), table.row("p", "what", "raw CRT")
    for mine, its in ((1.0, 2.0), (3.0, 4.0), (9.0, 10.0)):
        ours.note(mb_per_s=mine)
        raw.note(mb_per_s=its)
    ours.ratio("of_raw", "mb_per_s", raw)
    assert ours.figures["of_raw"] == [0.5, 0.75, 0.9]
    assert ours.of("of_raw") == 0.75
    assert table.row("p", "what", "s3mount") is ours
