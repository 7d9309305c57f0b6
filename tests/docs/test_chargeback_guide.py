"""The guide to chargeback is run as it stands, and the reference has every column and field."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlane.chargeback.focus import COLUMNS, LineColumn
from fairlane.chargeback.price_book import PriceBook, PriceEntry
from fairlane.chargeback.statements import StatementFacts
from fairlane.cli.main import cli
from tests.unit.chargeback.usage_tables import usage, write_usage

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "guides" / "chargeback.md").read_text()
REFERENCE = (DOCS / "reference" / "chargeback.md").read_text()
BLOCK = re.compile(r"^```(toml|sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TYPES = {
    "string": "string",
    "bool": "bool",
    "decimal128(38, 18)": "decimal(38, 18)",
    "decimal128(38, 9)": "decimal(38, 9)",
    "timestamp[ms, tz=UTC]": "timestamp",
}
FIRST, SECOND, THIRD = "2026-03-01", "2026-03-02", "2026-03-03"
ACME = usage("acme", cost_true=500, acked_bytes=1_500_000_000, service_ms=3_600_000)


def test_the_guide_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands, with the price book of the page, print exactly what the page shows, before and after late data."""
    monkeypatch.chdir(tmp_path)
    write_usage(
        Path("tables"),
        {
            FIRST: [ACME, usage("beta", cost_true=100, acked_bytes=100_000_000, service_ms=500_000)],
            SECOND: [
                usage("acme", cost_true=300),
                usage("beta", cost_true=100, acked_bytes=1_000_000_000, service_ms=200_000),
                usage("beta", queue="mail", acked=7),
            ],
            THIRD: [usage("acme", cost_true=1)],
        },
    )
    shown = ""
    for kind, text in BLOCK.findall(GUIDE):
        if kind == "toml":
            Path("prices.toml").write_text(text)
        elif kind == "text":
            assert shown == text
        else:
            if "verify" in text and "agree" not in shown:
                late = usage("beta", cost_true=150, acked_bytes=100_000_000, service_ms=500_000)
                write_usage(Path("tables"), {FIRST: [ACME, late]})
            [command] = text.splitlines()
            shown = CliRunner().invoke(cli, shlex.split(command)[1:], catch_exceptions=False).output


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_every_column_is_in_the_reference(column: LineColumn) -> None:
    """The reference has a row for each column, with its type and its meaning."""
    assert f"| `{column.name}` | {TYPES[str(column.type)]} | {column.meaning} |" in REFERENCE


@pytest.mark.parametrize(
    "name", [name for kind in (PriceBook, PriceEntry, StatementFacts) for name in kind.__struct_fields__]
)
def test_every_field_is_in_the_reference(name: str) -> None:
    """The reference has a row for each field of a price book and each fact of a statement."""
    assert f"| `{name}` |" in REFERENCE
