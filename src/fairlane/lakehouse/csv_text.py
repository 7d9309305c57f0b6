"""Cells of CSV files that people open in a spreadsheet."""

from __future__ import annotations


def inert(value: object) -> object:
    """Return a value that no spreadsheet takes for a formula: a name that would be one gets a quote in front."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value
