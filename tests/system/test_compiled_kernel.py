"""The kernel compiled, which takes a C compiler: it passes the tests of the plain one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WHATIF = ("capacity", "consumers", "many_keys", "recording", "reproduction", "scenarios", "simulation", "twin")
SUITES = (
    *("tests/unit/scheduler", "tests/property/scheduler", "tests/simulation/test_known_seeds.py"),
    *(f"tests/spark/test_whatif_{name}.py" for name in WHATIF),
)
HEADER = Path(sysconfig.get_path("include")) / "Python.h"


def run(command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a command in the checkout."""
    environment = {**os.environ, **more}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, check=False, text=True, capture_output=True
    )


@pytest.mark.long
@pytest.mark.skipif(shutil.which("gcc") is None and shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.skipif(not HEADER.exists(), reason="no headers of Python")
def test_the_compiled_kernel_passes_the_tests_of_the_plain_one(tmp_path: Path) -> None:
    """It is compiled without optimization, is really in use, and behaves the same, down to refused types."""
    compiled = run(["tools/compile_kernel.py", "--level", "0", str(tmp_path)])
    assert compiled.returncode == 0, compiled.stderr
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    used = run(["-c", "from fairlane.scheduler.compiled import is_compiled; print(is_compiled())"], PYTHONPATH=paths)
    assert used.stdout == "True\n"
    tested = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITES], PYTHONPATH=paths)
    assert tested.returncode == 0, tested.stdout[-4000:]
