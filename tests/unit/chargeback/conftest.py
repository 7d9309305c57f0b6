"""Fixtures of the chargeback tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.chargeback.usage_tables import Books


@pytest.fixture
def books(tmp_path: Path) -> Books:
    """Return a folder with a price book, and places for tables and statements."""
    return Books(tmp_path)
