"""The first commands of the README and the quickstart, typed into a shell in a fresh environment."""

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

from tests.kit.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "lock.txt"
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INSTALL = "pip install '.[server]'"
SERVE = "fairlane serve"
pytestmark = pytest.mark.timeout(600)  # it installs the package


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def served(programs: Path, environment: dict[str, str], port: int) -> Iterator[None]:
    """Run the server, as in a terminal of its own."""
    command, *arguments = SERVE.split()
    server = subprocess.Popen([programs / command, *arguments], env=environment, stdout=subprocess.DEVNULL)

    def is_up() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(is_up, what="the server listens")
        yield
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install Fairlane as the pages say, and return the folder of its commands."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    versions = folder.with_name("versions.txt")  # without hashes: pip can't check the hash of a folder, and so of none
    versions.write_text("".join(f"{line}\n" for line in re.findall(r"^\w[^\\\n]+", LOCK.read_text(), re.MULTILINE)))
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(versions),
    }
    subprocess.run(INSTALL, shell=True, check=True, cwd=ROOT, env=environment)  # noqa: S602 - our own command
    return folder / "bin"


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_first_commands_print_what_the_page_shows(page: str, programs: Path, tmp_path: Path) -> None:
    """Install, serve, flood a queue: the commands print exactly what the page shows."""
    blocks = BLOCK.findall((ROOT / page).read_text())
    lines = [line for kind, text in blocks if kind == "sh" for line in text.splitlines()]
    [expected] = [text for kind, text in blocks if kind == "text"]
    assert lines[:2] == [INSTALL, SERVE]
    port = free_port()
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path),
        "FAIRLANE_PORT": str(port),
        "FAIRLANE_SERVER": f"http://127.0.0.1:{port}",
    }
    with served(programs, environment, port):
        shell = ["bash", "-euo", "pipefail", "-c", "\n".join(lines[2:])]
        done = subprocess.run(shell, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(expected), done.stdout
