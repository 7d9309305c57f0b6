from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_fastapi_gate_lets_the_quiet_tenant_through() -> None:
    """The example runs by itself, and its table shows every request, the quiet tenant's among the first."""
    command = [sys.executable, "examples/fastapi_gate.py"]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout
    rows = [line.split() for line in output.splitlines() if line[:7].strip().isdigit()]
    tenants = [row[2] for row in rows]
    assert len(rows) == 25
    assert [at for at, tenant in enumerate(tenants) if tenant == "quiet"][-1] <= 8
