"""Tables that give rise to alarms, made by hand."""

from __future__ import annotations

import json
from pathlib import Path

from fairlane.lakehouse.state import MANIFEST

DAY, DAY_BEFORE = "2026-03-02", "2026-03-01"
HOUR_MS = 3_600_000
DAY_MS = 1_772_409_600_000
"""The beginning of the day."""
NOW_MS = DAY_MS + 20 * HOUR_MS + 30 * 60_000


def set_horizon(folder: Path, at_ms: int = NOW_MS) -> None:
    """Say in the manifest when the last event was."""
    told = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**told, "horizon_ms": at_ms}))
