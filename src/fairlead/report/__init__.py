"""Reports from the tables of the pipeline: one page with plots, and the same numbers as CSV, JSON and Markdown.

Needs the extra ``fairlead[report]``: Parquet is read with Arrow, so no Spark is needed, and plots are Plotly's.
"""

from __future__ import annotations

from fairlead.report.making import FORMATS, make_report
from fairlead.report.period import Period

__all__ = ["FORMATS", "Period", "make_report"]
