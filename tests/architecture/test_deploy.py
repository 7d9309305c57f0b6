"""Alerts, dashboard and runbooks name only metrics, labels, pages, commands and settings that exist."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import promql_parser
import pytest
import yaml

from fairlane.assembly import QueuePolicy
from fairlane.cli.main import cli

ROOT = Path(__file__).parents[2]
RUNBOOKS = ROOT / "docs" / "operating" / "runbooks"
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
MONITORING = (ROOT / "docs" / "operating" / "monitoring.md").read_text()
RULES = [
    rule
    for group in yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "fairlane.json").read_text())
ROW = re.compile(r"^\| `((?:fairlane|process)_\w+)` \| (\w+) \| (.*?) \|", re.MULTILINE)
OF_PROMETHEUS = {"job", "instance"}
GRAFANA = {"$__rate_interval": "5m"}


def known() -> dict[str, set[str]]:
    """Return the labels of each time series in the reference."""
    series: dict[str, set[str]] = {"up": set()}
    for name, kind, told in ROW.findall(REFERENCE):
        labels = set(re.findall(r"`(\w+)`", told))
        if kind == "histogram":
            series |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
        else:
            series[name] = labels
    return series


SERIES = known()


def panels() -> Iterator[tuple[str, str]]:
    """Yield title and expression of every query of the dashboard."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    """Return the selectors of a PromQL expression; fail if it is invalid."""
    for name, value in GRAFANA.items():
        expression = expression.replace(name, value)
    found: list[promql_parser.VectorSelector] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
            below = getattr(node, name, None)
            if below is not None:
                visit(below)
        for below in getattr(node, "args", None) or ():
            visit(below)

    visit(promql_parser.parse(expression))
    return found


EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in RULES] + list(panels())
EXPRESSIONS += [("monitoring", text) for text in re.findall(r"^\| .*\? \| `(.*)` \|$", MONITORING, re.MULTILINE)]


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_every_queried_metric_exists(where: str, expression: str) -> None:
    """Each expression is valid PromQL, and the reference has its metrics and labels."""
    named = set(re.findall(r"(?:fairlane|process)_\w+", expression))
    chosen = selectors(expression)
    assert {each.name for each in chosen if each.name != "up"} == named, where
    for each in chosen:
        assert each.name in SERIES, where
        labels = {matcher.name for matcher in each.matchers.matchers}
        assert labels - OF_PROMETHEUS <= SERIES[each.name], where


def test_what_an_alert_is_about_can_be_seen() -> None:
    """Every metric of an alert is on the dashboard too, apart from those of the pipeline, which is another process."""
    alerting = {each.name for rule in RULES for each in selectors(rule["expr"]) if each.name != "up"}
    shown = {each.name for _, expression in panels() for each in selectors(expression)}
    assert {name for name in alerting if not str(name).startswith("fairlane_pipeline_")} <= shown


def test_every_alert_has_a_runbook() -> None:
    """Every alert has a runbook and links to it, and the monitoring page lists them all."""
    alerts = {rule["alert"] for rule in RULES}
    assert len(alerts) == len(RULES)
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == alerts
    assert {rule["annotations"]["runbook"] for rule in RULES} == {
        f"docs/operating/runbooks/{name}.md" for name in alerts
    }
    assert set(re.findall(r"\(runbooks/(\w+)\.md\)", MONITORING)) == alerts
    for rule in RULES:
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)
def test_the_commands_of_a_runbook_exist(page: Path) -> None:
    """It explains the alert, its diagnosis and its remedy, and its commands and settings exist."""
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Diagnosis", "Remedy"]
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for line in "".join(blocks).splitlines():
        if line.startswith("fairlane "):
            check_command(shlex.split(line, comments=True)[1:])


def check_command(words: list[str]) -> None:
    """Check that a command, its options and its policy fields exist."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words
        command, words = found, words[1:]
    known_options = {name for each in command.params for name in each.opts + each.secondary_opts} | {"--help"}
    assert {word for word in words if word.startswith("--")} <= known_options
    fields = [word.partition("=")[0] for before, word in pairwise(words) if before == "--set"]
    assert set(fields) <= set(QueuePolicy.__struct_fields__)


def test_the_dashboard_can_be_imported() -> None:
    """Panels have unique ids, do not overlap, and use the chosen data source."""
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y)
        for each in places
        for x in range(each["x"], each["x"] + each["w"])
        for y in range(each["y"], each["y"] + each["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)
    sources = {panel["datasource"]["uid"] for panel in DASHBOARD["panels"] if "datasource" in panel}
    assert sources == {"${datasource}"}
    assert {each["name"] for each in DASHBOARD["templating"]["list"]} == {"datasource", "job", "instance", "queue"}
