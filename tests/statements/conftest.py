"""Fixtures of the statements."""

from __future__ import annotations

from tests.unit.cli.conftest import shell

__all__ = ["shell"]
