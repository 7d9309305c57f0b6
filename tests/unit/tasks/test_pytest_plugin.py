"""Tests of the fixtures for pytest, in a pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.waiting import PATIENCE_S

JOBS = """
from fairlane import App
app = App()
done = []

@app.task(queue="mail")
def send(to: str) -> None:
    done.append(to)
"""
TEST = """
import jobs

def test_a_job(fairlane):
    jobs.send.options(delay="1h").send_sync("ada")
    assert fairlane.run().handled == 1
    assert jobs.done == ["ada"]
"""
FIXTURE = """
import pytest
import jobs

@pytest.fixture
def fairlane_app():
    return jobs.app
"""


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize(
    "files",
    [
        {"pytest.ini": "[pytest]\nfairlane_app = jobs:app\npythonpath = .\n"},
        {"pytest.ini": "[pytest]\npythonpath = .\n", "conftest.py": FIXTURE},
    ],
    ids=["option", "fixture"],
)
def test_the_fixture_runs_jobs(tmp_path: Path, files: dict[str, str]) -> None:
    """The app is named by an option or by a fixture, and a test runs its jobs."""
    for name, text in {"jobs.py": JOBS, "test_jobs.py": TEST, **files}.items():
        (tmp_path / name).write_text(text)
    result = run(tmp_path)
    assert "1 passed" in result.stdout, result.stdout + result.stderr


def test_a_missing_app_is_explained(tmp_path: Path) -> None:
    """Without an app, the error says how to name it."""
    (tmp_path / "test_jobs.py").write_text("def test_a_job(fairlane): ...\n")
    assert "Set fairlane_app = MODULE:APP" in run(tmp_path).stdout


def test_the_plugin_is_cheap_to_import() -> None:
    """pytest loads it in every project, so it brings no broker with it."""
    code = "import fairlane.pytest_plugin, sys; print('asyncio' in sys.modules, 'fairlane.testing' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert told[1] == "False"
