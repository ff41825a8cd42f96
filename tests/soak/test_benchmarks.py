"""The reading benchmark runs: small sizes, ours and the raw client, without what only `make bench` installs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mount, pytest.mark.server, pytest.mark.soak]

_ROOT = Path(__file__).parents[2]


def test_a_quick_run_reports_every_contender_with_its_aims(work: Path) -> None:
    """One row each for ours, the raw client and the local disk: figures, their medians, and ours judged by its aim."""
    report = work / "report.json"
    command = [sys.executable, "-m", "benchmarks.read", "--quick", "--only", "plain", "--without-peers"]
    run = subprocess.run([*command, "--json", str(report)], cwd=_ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found = json.loads(report.read_text(encoding="utf-8"))
    assert found["quick"] is True
    assert set(found["seconds"]) == {"plain"}
    rows = {row["who"]: row for row in found["rows"]}
    assert set(rows) == {"s3mount", "raw CRT", "local"}
    for row in rows.values():
        assert {"mb_per_s", "seconds", "cpu_s_per_gb", "peak_rss_mib", "machine_busy"} <= set(row["figures"])
        assert len(row["figures"]["mb_per_s"]) == 1
        assert set(row["medians"]) == set(row["figures"])
        assert row["medians"]["mb_per_s"] > 0
    assert len(rows["s3mount"]["figures"]["of_raw"]) == 1
    (aim,) = rows["s3mount"]["aims"]
    assert (aim["figure"], aim["is_least"]) == ("cpu_s_per_gb", False)
    assert aim["verdict"] in {"met", "MISSED"}
    assert f"aim: cpu_s_per_gb <= {aim['bound']}" in run.stdout
