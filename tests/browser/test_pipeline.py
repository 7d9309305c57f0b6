"""The pipeline page with real tables and a real report."""

from __future__ import annotations

import json
from pathlib import Path

from fairlane.report import make_report
from tests.browser.viewer import Viewer, served
from tests.unit.report.written_tables import HOSTILE, write_all

JOURNAL = {"journal_id": "00000000000000aa", "covered": [[1, 500, None, None]]}
MANIFEST = {"version": 2, "run": 2, "format": "parquet", "journals": [JOURNAL], "days": ["2026-03-01", "2026-03-02"]}
ALARM = {"kind": "slower", "queue": "orders", "subject": HOSTILE, "since_ms": 1_772_409_600_000}
MADE = "[window.owned, document.querySelectorAll('main script, main img').length]"


def test_alarms_tables_readers_and_the_report_are_shown(tmp_path: Path, viewer: Viewer) -> None:
    """The page shows alarms, how fresh tables are, how far readers lag, and the report with charts; names stay text."""
    made = tmp_path / "made"
    write_all(made / "tables")
    manifest = made / "tables" / "manifest.json"
    told = {**json.loads(manifest.read_text()), **MANIFEST, "horizon_ms": 1_772_409_600_000, "events": 500}
    manifest.write_text(json.dumps(told))
    alarms = {"version": 1, "raised": [{**ALARM, "text": f"{HOSTILE} waits longer in orders."}]}
    (made / "tables" / "alarms.json").write_text(json.dumps(alarms))
    make_report(made / "tables", made / "report")
    with served(tmp_path / "data", "--reports", str(made)) as server:
        server.post("queues/create", {"queue": "orders"})
        server.post("journal/reader/set", {"name": "etl", "position": 1})
        page = viewer.open(server, "pipeline")
        viewer.sees("Run 2: 500 events up to 2026-03-02 00:00:00.000 UTC.")
        assert viewer.cells(f"{HOSTILE} waits longer in orders.")[1] == "orders"
        name, day, written, _, _ = viewer.cells("tenant_usage")
        assert (name, day) == ("tenant_usage", "2026-03-02")
        assert written.endswith(" ago")
        (reader,) = server.post("journal/reader/list")["readers"]
        assert viewer.cells("etl")[1:3] == [f"{reader['behind']} events", "1"]
        for section, chart, bars in (("Shares", "Shares of orders", 2), ("Served meanwhile", "Who made whom", 1)):
            page.click(f"nav.tabs a:text-is('{section}')")
            assert viewer.drawn(chart).locator(".barlayer .trace").count() == bars
            assert page.locator("#report section h2").all_inner_texts() == [section]  # one section at a time
        page.click("nav.tabs a:text-is('Usage')")
        page.locator("#report th, #report td", has_text=HOSTILE).first.wait_for()
        assert page.evaluate(MADE) == [None, 0]


def test_without_a_folder_the_page_explains_the_setup(tmp_path: Path, viewer: Viewer) -> None:
    """It names the setting and the commands that fill the folder."""
    with served(tmp_path) as server:
        viewer.open(server, "pipeline")
        viewer.sees("Start the server with --reports FOLDER")
        viewer.sees("fairlane pipeline run --tables made/tables --once")
