"""Reports from the tables of the pipeline: one page with plots, and the same numbers as CSV, JSON and Markdown.

Needs the extra ``fairlane[report]``: Parquet is read with Arrow, so no Spark is needed, and plots are Plotly's.
"""

from __future__ import annotations

from fairlane.report.files import FORMATS, make_report
from fairlane.report.tables import Period

__all__ = ["FORMATS", "Period", "make_report"]
