"""A run that skips tests says so at its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUITE = '''
import pytest

@pytest.fixture(scope="module")
def server():
    pytest.skip("PostgreSQL is not installed.")

@pytest.mark.parametrize("number", range(3))
def test_of_a_server(server, number):
    """Skipped by its fixture."""

@pytest.mark.skipif(True, reason="it is about curl")
def test_marked():
    """Skipped by a mark."""

def test_passing():
    """Passes."""
'''


def run(folder: Path, *arguments: str) -> str:
    """Run pytest on a folder with the summary of this project, and return what it prints."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.kit.skips", "-p", "no:cacheprovider", "-c", "/dev/null"]
    command += ["--rootdir", str(folder), *arguments, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_end_of_a_run_names_what_was_skipped_and_why(tmp_path: Path) -> None:
    """Each reason has a line with the number of its tests and their files, in one process and in several."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    for arguments in ((), ("--numprocesses", "1")):
        _, _, summary = run(tmp_path, *arguments).partition("NOT TESTED")
        assert "3 tests in test_suite.py: PostgreSQL is not installed.\n" in summary
        assert "1 test in test_suite.py: it is about curl\n" in summary


def test_a_run_that_skips_nothing_says_nothing(tmp_path: Path) -> None:
    """Without skipped tests there is no such section."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    assert "NOT TESTED" not in run(tmp_path, "-k", "passing")
