"""A report as one page that needs nothing else: plots, tables, and the script that draws, all inside.

Everything that comes from messages is escaped, in the tables as HTML and in the plots twice over: as what Plotly reads
of HTML, and as JSON inside a script.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import Any

import msgspec

from fairlane.errors import InvalidArgument
from fairlane.report.figures import Figure, figures_of
from fairlane.report.sections import Cell, Heading, Report, Section, shown
from fairlane.report.summary import findings_of

ROWS_MAX = 50
"""The number of rows of a section on the page; CSV and JSON have all of them."""


def page_of(report: Report) -> str:
    """Return a report as HTML."""
    figures = figures_of(report)
    parts = [_section(section, len(figures.get(section.name, ()))) for section in report.sections if section.rows]
    found = "".join(f"<li>{escape(finding)}</li>" for finding in findings_of(report))
    links = "".join(f'<a href="#{s.name}">{escape(s.title)}</a>' for s in report.sections if s.rows)
    return _PAGE.format(
        title=escape(report.title),
        period=escape(report.period),
        style=_shipped("report.css"),
        links=links,
        warning=f'<p class="warning" role="alert">{escape(report.warning)}</p>' if report.warning else "",
        findings=found,
        sections="".join(parts) or "<p>Nothing happened in this period.</p>",
        figures=_json(figures),
        plotly=plotly_script(),
        draw=_shipped("report.js"),
    )


def page_data(report: Report) -> dict[str, Any]:
    """Return the same page as plain data, for the dashboard. Numbers are formatted for reading."""
    figures = figures_of(report)
    return {
        "title": report.title,
        "period": report.period,
        "findings": [*([report.warning] if report.warning else []), *findings_of(report)],
        "sections": [_told(section, figures.get(section.name, [])) for section in report.sections if section.rows],
    }


def _told(section: Section, figures: list[Figure]) -> dict[str, Any]:
    return {
        "name": section.name,
        "title": section.title,
        "meaning": section.meaning,
        "columns": [[heading.title, heading.unit] for heading in section.headings],
        "rows": [_texts(section.headings, row) for row in section.rows[:ROWS_MAX]],
        "rows_left_off": max(0, len(section.rows) - ROWS_MAX),
        "figures": figures,
    }


def _texts(headings: tuple[Heading, ...], row: tuple[Cell, ...]) -> list[str]:
    return [shown(value, heading.unit) for heading, value in zip(headings, row, strict=True)]


def plotly_script() -> str:
    """Return the script that draws, as the package plotly ships it.

    Raises:
        InvalidArgument: the package is not installed.
    """
    try:
        return files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")
    except ModuleNotFoundError as error:
        raise InvalidArgument("A page with plots needs the package plotly: install fairlane[report].") from error


def _shipped(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _section(section: Section, figures: int) -> str:
    plots = "".join(f'<div class="plot" data-figure="{section.name}" data-at="{at}"></div>' for at in range(figures))
    head = "".join(
        f'<th scope="col" class="{heading.unit}">{escape(heading.title)}</th>' for heading in section.headings
    )
    body = "".join(_row(section.headings, row) for row in section.rows[:ROWS_MAX])
    left = len(section.rows) - ROWS_MAX
    more = f"<p>{left:,} more rows are in the CSV and JSON files.</p>" if left > 0 else ""
    return (
        f'<section id="{section.name}"><h2>{escape(section.title)}</h2><p>{escape(section.meaning)}</p>{plots}'
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}</section>'
    )


def _row(headings: tuple[Heading, ...], row: tuple[Cell, ...]) -> str:
    texts = zip(headings, _texts(headings, row), strict=True)
    cells = (f'<td class="{heading.unit}">{escape(text)}</td>' for heading, text in texts)
    return f"<tr>{''.join(cells)}</tr>"


def _json(value: object) -> str:
    """Return JSON that can't end the script it stands in."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}, {period}</title><style>{style}</style></head>
<body><header><h1>{title}</h1><p>{period}</p><nav>{links}</nav></header>
<main>{warning}<ul>{findings}</ul>{sections}</main>
<script type="application/json" id="figures">{figures}</script>
<script>{plotly}</script><script>{draw}</script></body></html>
"""
