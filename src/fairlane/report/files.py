"""Making a report: from a folder of tables to files."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Collection
from pathlib import Path

import msgspec

from fairlane.errors import InvalidArgument
from fairlane.lakehouse import TablesAddress
from fairlane.lakehouse.csv_text import inert
from fairlane.report.analysis import report_of
from fairlane.report.page import page_data, page_of
from fairlane.report.sections import Report, Section
from fairlane.report.summary import summary_of
from fairlane.report.tables import Period, Tables

FORMATS = ("html", "md", "json", "csv")


def make_report(
    tables: str | Path | TablesAddress,
    folder: Path,
    *,
    period: Period | None = None,
    formats: Collection[str] = FORMATS,
) -> list[Path]:
    """Write a report from the tables of the pipeline into a folder, and return its files.

    ``report.html`` is a self-contained page, ``report.md`` a summary, ``report.json`` has all numbers, ``page.json``
    what the page shows, for the dashboard, and the folder ``csv`` has one file for each section. Each file is replaced
    atomically. The same tables give the same files.

    Raises:
        InvalidArgument: there are no tables, or a format is not known.
    """
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise InvalidArgument(f"Unknown report format {unknown[0]!r}. Use one of {', '.join(FORMATS)}.")
    report = report_of(Tables(tables, period or Period()))
    contents: dict[Path, str] = {}
    if "html" in formats:
        contents[folder / "report.html"] = page_of(report)
    if "md" in formats:
        contents[folder / "report.md"] = summary_of(report)
    if "json" in formats:
        contents[folder / "report.json"] = _json(report)
        contents[folder / "page.json"] = msgspec.json.encode(page_data(report)).decode() + "\n"
    if "csv" in formats:
        contents |= {folder / "csv" / f"{section.name}.csv": _csv(section) for section in report.sections}
    for path, text in contents.items():
        _write(path, text)
    return list(contents)


def _json(report: Report) -> str:
    told = {
        "title": report.title,
        "first_day": report.first_day,
        "last_day": report.last_day,
        "warning": report.warning,
        "sections": {section.name: section.dicts() for section in report.sections},
    }
    return msgspec.json.format(msgspec.json.encode(told), indent=1).decode() + "\n"


def _csv(section: Section) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([heading.name for heading in section.headings])
    writer.writerows([[inert(value) for value in row] for row in section.rows])
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_text(text, encoding="utf-8", newline="\n")
    os.replace(unfinished, path)  # noqa: PTH105 - it replaces on every platform
