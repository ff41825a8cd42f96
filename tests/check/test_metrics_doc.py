"""docs/metrics.md, the dashboard and the alerts name what is served, and all of it."""

import json
import re

import yaml

from s3mount.daemon.metrics import FAMILIES, text_of
from tests.daemon.test_scrapes import EMPTY
from tests.support.metrics_doc import ROOT, documented_metrics

DASHBOARD = ROOT / "docs/grafana/s3mount.json"
ALERTS = ROOT / "docs/grafana/alerts.yml"
_SUFFIXES = r"_(bucket|count|sum)$"


def served() -> dict[str, str]:
    """Names and types that a scrape has."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text_of(EMPTY).decode(), re.MULTILINE))


def test_every_metric_is_documented() -> None:
    """docs/metrics.md lists each metric that is served with its type and labels, and no other."""
    labels = {"info": "mount_point, bucket, prefix, version", "call_errors": "operation, errno"}
    labels |= {family.name: family.label for family in FAMILIES if family.name not in labels}
    expected = {
        name: (kind, labels[name.removeprefix("s3mount_").removesuffix("_total")])
        for name, kind in served().items()
        if name.startswith("s3mount_")
    }
    assert documented_metrics() == expected


def test_names_have_units() -> None:
    """A counter's name ends in _total; what is measured in seconds, bytes or dollars says so in its name."""
    for name, kind in served().items():
        assert name.endswith("_total") == (kind == "counter"), name
    plain = re.compile(r"(milli|micro|_ms|_kb|_mb|_mib|_percent)")
    assert [name for name in served() if plain.search(name)] == []


def metrics_in(text: str) -> set[str]:
    return {re.sub(_SUFFIXES, "", name) for name in re.findall(r"\b(?:s3mount|process)_[a-z_0-9]+", text)}


def test_the_dashboard_exists() -> None:
    """Each metric that the dashboard draws is served, and each panel has its place and its unit."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    exprs = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(exprs) > 20
    assert metrics_in(" ".join(exprs)) - served().keys() == set()
    assert metrics_in(json.dumps(dashboard["templating"])) <= served().keys()
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in dashboard["panels"])


def test_alerts_exist_and_are_explained() -> None:
    """Each metric in an alert is served, and operations.md says what to do for each alert."""
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
    assert len(rules) >= 8
    assert metrics_in(" ".join(rule["expr"] for rule in rules)) - served().keys() == set()
    _, _, runbook = (ROOT / "docs/operations.md").read_text(encoding="utf-8").partition("\n## Alarms\n")
    assert re.findall(r"^\| `(\w+)`", runbook.partition("\n## ")[0], re.MULTILINE) == [rule["alert"] for rule in rules]
