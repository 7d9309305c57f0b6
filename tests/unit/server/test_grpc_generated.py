"""The Python of the gRPC services is that of ``proto/``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_what_is_made_is_up_to_date() -> None:
    """Each file is what the tool makes; run tools/make_grpc.py if not."""
    command = [sys.executable, "tools/make_grpc.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
