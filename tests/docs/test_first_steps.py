"""The README and the quickstart, typed into shells in a fresh environment and an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.kit.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "lock.txt"
BLOCK = re.compile(r"^```(sh|text|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
INSTALL = "pip install '.[server]'"
ENVIRONMENT = "~/shop-venv"
"""Where the quickstart makes its environment."""
SERVE = "fairlane serve"
RUNNING = (SERVE, "fairlane worker", "uvicorn")
"""What runs in a terminal of its own."""
pytestmark = pytest.mark.timeout(600)  # it installs the package


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def is_up(port: int) -> bool:
    """Return whether something listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def in_background(command: str, environment: dict[str, str], folder: Path) -> Iterator[None]:
    """Run a command as in a terminal of its own."""
    program, *arguments = shlex.split(command)
    found = Path(environment["PATH"].partition(":")[0]) / program
    process = subprocess.Popen([found, *arguments], env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def quickstart_blocks() -> list[tuple[str, str]]:
    """Return the kind and the text of each block of the quickstart."""
    blocks: list[tuple[str, str]] = BLOCK.findall((ROOT / "docs" / "quickstart.md").read_text())
    assert blocks[0][1].endswith(f"{INSTALL} fastapi pytest\n")
    return blocks


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install Fairlane as the quickstart says, and return the folder of its commands."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    versions = folder.with_name("versions.txt")  # without hashes: pip can't check the hash of a folder, and so of none
    versions.write_text("".join(f"{line}\n" for line in re.findall(r"^\w[^\\\n]+", LOCK.read_text(), re.MULTILINE)))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(versions),
    }
    install = quickstart_blocks()[0][1].replace(ENVIRONMENT, str(folder))
    subprocess.run(install, shell=True, check=True, cwd=ROOT, env=environment)  # noqa: S602 - our own commands
    return folder / "bin"


def environment_of(programs: Path, folder: Path, port: int) -> dict[str, str]:
    """Return the environment of a reader's shell."""
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(folder / "state"),
        "FAIRLANE_PORT": str(port),
        "FAIRLANE_SERVER": f"http://127.0.0.1:{port}",
    }


def typed(command: str, environment: dict[str, str], folder: Path) -> str:
    """Return what a command prints that is typed into a shell."""
    shell = ["bash", "-euo", "pipefail", "-c", command]
    done = subprocess.run(shell, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def test_the_first_commands_of_the_readme_print_what_it_shows(programs: Path, tmp_path: Path) -> None:
    """Install, serve, flood a queue: the commands print exactly what the page shows."""
    blocks = BLOCK.findall((ROOT / "README.md").read_text())
    lines = [line for kind, text in blocks if kind == "sh" for line in text.splitlines()]
    [expected] = [text for kind, text in blocks if kind == "text"]
    assert lines[:2] == [INSTALL, SERVE]
    port = free_port()
    environment = environment_of(programs, tmp_path, port)
    with in_background(SERVE, environment, tmp_path):
        wait_until(lambda: is_up(port), what="the server listens")
        assert typed("\n".join(lines[2:]), environment, tmp_path).endswith(expected)


def test_the_quickstart_works_as_it_is_written(programs: Path, tmp_path: Path) -> None:
    """Its files are saved, its programs run, its commands print what the page shows, and its test passes."""
    port, web_port = free_port(), free_port()
    environment = environment_of(programs, tmp_path, port)
    blocks = [(kind, text.replace("8000", str(web_port))) for kind, text in quickstart_blocks()]
    shown, printed = "", ""
    with ExitStack() as terminals:
        for kind, text in blocks[1:]:
            command = text.strip()
            if kind == "python":
                name = FILE.match(text)
                assert name is not None, "a block names its file"
                (tmp_path / name[1]).write_text(text)
            elif kind == "text":
                assert shown.strip() == command
            elif command.startswith(RUNNING):
                terminals.enter_context(in_background(command, environment, tmp_path))
                listening = {SERVE: port, "uvicorn": web_port}.get(command if command == SERVE else command.split()[0])
                if listening is not None:
                    wait_until(lambda at=listening: is_up(at), what=command)  # type: ignore[misc] # bound now
            else:
                shown = typed(command, environment, tmp_path)
                printed += shown
        with urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S) as page:
            assert "<title>Fairlane</title>" in page.read().decode(), "the dashboard of the server"
    assert "2 passed" in printed
