"""The guide to the outbox is run as it stands, with a server and a database."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from tests.kit.servers.stores import PostgresServer
from tests.unit.client.serving import ServerProcess
from tests.unit.outbox.databases import empty_database

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DEFAULT_SERVER = "http://127.0.0.1:7420"


def script_of(page: str) -> str:
    """Return the blocks of a page as one shell script, in the order of the page."""
    lines = ["set -e"]
    for kind, text in BLOCK.findall(page):
        lines.append(text if kind == "sh" else f"{shlex.quote(sys.executable)} -c {shlex.quote(text)}")
    return "\n".join(lines)


def test_the_guide_does_what_it_says(postgres: PostgresServer) -> None:
    """The commands and programs of the page, typed one after the other, move the message to the queue."""
    page = (ROOT / "docs" / "guides" / "outbox.md").read_text()
    with empty_database(postgres) as url, ServerProcess() as server:
        address = server.url.replace("ws:", "http:")
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "DATABASE_URL": url,
            "FAIRLANE_SERVER": address,
        }
        shell = subprocess.Popen(
            ["bash", "-c", script_of(page.replace(DEFAULT_SERVER, address))],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert shell.stdout is not None
        printed = ""
        for line in shell.stdout:  # the relay keeps the pipe open, so read up to the last line of the page
            printed += line
            if line.startswith("rejected"):
                break
        os.killpg(shell.pid, signal.SIGKILL)
        shell.stdout.close()
        shell.wait()
    assert "acme {'order': 7}" in printed
    assert printed.endswith("waiting   0\nrejected  0\n")
