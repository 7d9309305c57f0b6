"""What the targets of the Makefile would run in a fresh checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def commands(target: str, folder: Path) -> list[str]:
    """Return the commands of a target and of all that it needs, of which nothing is there yet."""
    make = ["make", "--dry-run", "--always-make", f"VENV={folder / 'venv'}", target]
    return subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def position(found: list[str], part: str) -> int:
    """Return the position of the first command with a part."""
    return next(at for at, command in enumerate(found) if part in command)


def test_the_cluster_demo_needs_no_spark(tmp_path: Path) -> None:
    """The server and PostgreSQL's driver are enough for it."""
    found = commands("demo-cluster", tmp_path)
    assert not [command for command in found if "install_locked.py dev" in command]
    assert position(found, "install_locked.py server") < position(found, "install_locked.py postgres")
    assert position(found, "install_locked.py postgres") < position(found, "-m examples.cluster")


def test_long_tests_have_their_servers(tmp_path: Path) -> None:
    """Both suites install the servers that the tests start, or would skip these."""
    for target, tests in (("test", "--numprocesses"), ("test-long", "-m long")):
        found = commands(target, tmp_path)
        assert position(found, "install_servers.py") < position(found, tests)
