"""Tests that the generated parts of the reference are up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "make_reference.py"


def test_the_generated_parts_of_the_reference_are_up_to_date() -> None:
    """The reference pages contain exactly what the code says."""
    answer = subprocess.run([sys.executable, str(TOOL), "--check"], check=False, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (0, "")
