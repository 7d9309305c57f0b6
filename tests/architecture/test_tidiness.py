"""The code gets tidier, or stays as it is."""

from __future__ import annotations

import pytest

from .tidiness import FINDERS, recorded

pytestmark = pytest.mark.no_cover


@pytest.mark.parametrize("name", FINDERS)
def test_nothing_gets_worse(name: str) -> None:
    """No count exceeds the recorded one; ``python -m tests.architecture.tidiness --lower`` records progress."""
    found = list(FINDERS[name]())
    assert len(found) <= recorded()[name], "\n".join(found)


def test_every_count_is_recorded() -> None:
    """The recorded file names exactly the things that are counted."""
    assert set(recorded()) == set(FINDERS)
