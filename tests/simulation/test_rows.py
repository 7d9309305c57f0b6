"""The broker decides the same whether plain messages are rows or objects."""

from __future__ import annotations

import pytest

from tests.kit.compare_rows import Comparison


@pytest.mark.parametrize("seed", range(1001, 1009))
def test_rows_and_objects_lead_to_the_same_decisions(seed: int) -> None:
    """With this seed every promise holds, and the journal is the same byte by byte, in every representation."""
    assert Comparison(seed).run().deliveries > 0
