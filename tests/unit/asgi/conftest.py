from __future__ import annotations

import pytest

from .driver import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()
