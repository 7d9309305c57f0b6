"""The alerts fire when they should and not otherwise, as promtool evaluates them over time."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.architecture.alert_cases import CASES, AlertCase, Series
from tests.architecture.test_deploy import ROOT, RULES

ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
SCRAPE = {"job": "fairlane", "instance": "a"}
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool; on Debian: apt-get install prometheus"
)


def scraped(series: str) -> str:
    """Return a series with the labels of the scrape."""
    name, _, labels = series.rstrip("}").partition("{")
    told = [f'{label}="{value}"' for label, value in SCRAPE.items()]
    return f"{name}{{{','.join([*told, *([labels] if labels else [])])}}}"


def scenario(case: AlertCase, series: Series, *, fires: bool) -> dict[str, object]:
    """Return a test for promtool."""
    rule = next(rule for rule in RULES if rule["alert"] == case.alert)
    alert = {
        "exp_labels": {**SCRAPE, **case.labels, **rule["labels"]},
        "exp_annotations": {"summary": case.summary, "runbook": rule["annotations"]["runbook"]},
    }
    return {
        "interval": "1m",
        "input_series": [{"series": scraped(name), "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": case.at, "alertname": case.alert, "exp_alerts": [alert] if fires else []}],
    }


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_every_alert_has_a_case() -> None:
    """No alert is without series on which it fires, and others on which it does not."""
    assert [case.alert for case in CASES] == [rule["alert"] for rule in RULES]
    assert all(case.quiet for case in CASES)


@needs_promtool
def test_the_rules_are_valid() -> None:
    """Prometheus loads the file."""
    checked = promtool("check", "rules", str(ALERTS))
    assert checked.returncode == 0, checked.stderr + checked.stdout


@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_when_it_should_and_not_otherwise(case: AlertCase, tmp_path: Path) -> None:
    """Over its series it fires with its labels and words; over those that are nearly the same it does not."""
    quiet = [scenario(case, series, fires=False) for series in case.quiet]
    tests = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "1m",
        "tests": [scenario(case, case.fires, fires=True), *quiet],
    }
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps(tests))  # which is YAML, too
    tested = promtool("test", "rules", str(file))
    assert tested.returncode == 0, tested.stderr + tested.stdout
