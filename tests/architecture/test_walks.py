"""The walk of one message through a server stays short."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "count_calls.py"
CEILINGS = {
    "http_enqueue": (140, 46),
    "http_lease": (135, 44),
    "http_ack": (117, 38),
    "stream_enqueue": (147, 49),
    "stream_lease": (164, 48),
    "stream_ack": (126, 41),
}
"""The most calls and files of each walk. Lower them when a walk gets shorter.

About 25 calls are the log, the store of a new folder. RocksDB does the same outside Python.
"""


@pytest.fixture(scope="module")
def walks() -> dict[str, dict[str, int]]:
    """Count every walk once."""
    done = subprocess.run([sys.executable, str(SCRIPT), "--json"], capture_output=True, text=True, check=True)
    counted: dict[str, dict[str, int]] = json.loads(done.stdout)
    return counted


@pytest.mark.parametrize("name", CEILINGS)
def test_a_walk_does_not_grow(name: str, walks: dict[str, dict[str, int]]) -> None:
    """One message passes no more calls and files than it did; ``--show`` prints which they are."""
    calls, files = CEILINGS[name]
    found = walks[name]
    assert (found["calls"] <= calls, found["files"] <= files) == (True, True), found
