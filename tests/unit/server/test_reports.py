"""GET /v1/reports: tables, report and journal readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlane.errors import InvalidArgument
from fairlane.server.settings import check, load
from fairlane.verbs.keys import Grant

from .house import House, opened, run

JOURNALS = [
    {"journal_id": "00000000000000aa", "covered": [[1, 700, 5, 9]], "is_ended": True},
    {"journal_id": "00000000000000bb", "covered": [[1, 40, 10, 20], [51, 90, 30, None]]},
]
MANIFEST = {"version": 2, "run": 3, "format": "parquet", "journals": JOURNALS, "gaps": [{}], "days": ["2026-03-01"]}


async def shown(house: House, folder: Path | None) -> dict[str, Any]:
    """Return the answer for a folder."""
    house.server.reports = folder
    answer = await house.http.get("/v1/reports")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_tables_readers_and_the_report_are_shown(tmp_path: Path) -> None:
    """The answer has tables with their latest day, readers with their lag, and the report."""
    for day, name in (("2026-03-01", "a.parquet"), ("2026-03-02", "b.parquet"), ("2026-03-03", ".c.parquet")):
        partition = tmp_path / "tables" / "events" / f"day={day}"
        partition.mkdir(parents=True)
        (partition / name).write_bytes(b"12345")
    (tmp_path / "tables" / ".staged").mkdir()
    (tmp_path / "tables" / "manifest.json").write_text(json.dumps({**MANIFEST, "horizon_ms": 77, "events": 80}))
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "page.json").write_text(json.dumps({"title": "Usage", "sections": []}))

    async def main() -> None:
        async with opened() as house:
            await house.post("journal/reader/set", {"name": "etl", "position": 1})
            found = await shown(house, tmp_path)
            assert found["state"] == "there"
            pipeline = found["pipeline"]
            assert (pipeline["sequence"], pipeline["gaps"], pipeline["horizon_ms"]) == (90, 1, 77)
            (table,) = pipeline["tables"]
            assert (table["name"], table["newest_day"]) == ("events", "2026-03-02")
            assert (table["files"], table["size_bytes"]) == (2, 10)
            assert [(each["name"], each["behind"]) for each in found["readers"]] == [("etl", found["journal_end"] - 1)]
            assert found["report"] == {"title": "Usage", "sections": []}

    run(main())


def test_an_empty_folder_differs_from_no_folder(tmp_path: Path) -> None:
    """The dashboard can say what to do next."""

    async def main() -> None:
        async with opened() as house:
            assert (await shown(house, None))["state"] == "not_set"
            assert (await shown(house, tmp_path))["state"] == "empty"
            (tmp_path / "report").mkdir()
            (tmp_path / "report" / "page.json").write_text("no JSON")
            answer = await house.http.get("/v1/reports")
            assert answer.json()["error"]["code"] == "store_corrupt"

    run(main())


def test_reports_need_the_right_admin(tmp_path: Path) -> None:
    """Reports cover all tenants."""

    async def main() -> None:
        async with opened(requires_auth=True) as house:
            house.server.reports = tmp_path
            for right, status in (("consume", 403), ("admin", 200)):
                key = await house.key(Grant(right=right))  # type: ignore[arg-type] # they are rights
                answer = await house.http.get("/v1/reports", headers={"authorization": f"Bearer {key}"})
                assert answer.status_code == status

    run(main())


def test_a_missing_folder_is_rejected(tmp_path: Path) -> None:
    """The check happens before anything is opened."""
    check(load(None, {}, {"reports": str(tmp_path)}))
    with pytest.raises(InvalidArgument, match="reports: folder"):
        check(load(None, {}, {"reports": str(tmp_path / "none")}))
