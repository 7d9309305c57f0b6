"""The README's first five minutes, typed into a shell in a fresh environment."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.waiting import wait_until

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SERVE = "fairlane serve"
pytestmark = pytest.mark.timeout(600)  # it installs the package


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def served(environment: dict[str, str], port: int) -> Iterator[None]:
    """Run the server, as in a terminal of its own."""
    server = subprocess.Popen(SERVE.split(), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_up() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(is_up, what="the server listens")
        yield
    finally:
        server.terminate()
        server.wait(30)


def test_the_first_five_minutes_are_as_the_readme_says(tmp_path: Path) -> None:
    """Install, serve, flood a queue: the commands print exactly what the README shows."""
    (_, install), (_, commands), (_, expected) = BLOCK.findall((ROOT / "README.md").read_text())
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    port = free_port()
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "FAIRLANE_PORT": str(port),
        "FAIRLANE_SERVER": f"http://127.0.0.1:{port}",
    }
    *before, serve = install.splitlines()
    assert serve == SERVE
    subprocess.run("\n".join(before), shell=True, check=True, cwd=ROOT, env=environment)  # noqa: S602 - it is our README
    with served(environment, port):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands], env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(expected), done.stdout
