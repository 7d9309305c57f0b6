"""Tables are opened as their manifest says, or refused with what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.errors import InvalidArgument, StoreCorrupt
from fairlane.lakehouse import open_tables
from fairlane.lakehouse.state import MANIFEST
from tests.kit.lakehouse import Run


def committed(folder: Path) -> Run:
    """Return a run that has written a number."""
    run = Run(str(folder))
    run.begin()
    run.commit(run.write([1]))
    return run


def test_a_listing_that_is_gone_is_refused(tmp_path: Path) -> None:
    """A manifest without its listing is damage, and not an empty set of tables."""
    run = committed(tmp_path)
    assert run.state.listing is not None
    (tmp_path / run.state.listing).unlink()
    with pytest.raises(StoreCorrupt, match="is missing, but the manifest names it"):
        open_tables(tmp_path)


@pytest.mark.parametrize("name", [MANIFEST, "listing"])
def test_a_damaged_manifest_or_listing_is_refused(tmp_path: Path, name: str) -> None:
    """Neither is taken for tables without files."""
    run = committed(tmp_path)
    (tmp_path / (MANIFEST if name == MANIFEST else str(run.state.listing))).write_text('{"')
    with pytest.raises(StoreCorrupt, match="is not a valid"):
        open_tables(tmp_path)


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The error lists the tables that there are, without the pipeline's own."""
    committed(tmp_path)
    with pytest.raises(InvalidArgument, match=r"Unknown table 'orders'.*Its tables: numbers, others"):
        open_tables(tmp_path).dataset("orders")
