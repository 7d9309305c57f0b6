"""The exit codes that the guide to the command line promises to scripts."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from fairlane.cli.main import cli
from tests.unit.cli.shell import Shell
from tests.unit.client.serving import free_port

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "command-line.md"
ROW = re.compile(r"^\| (\d+) \| (.+) \|$", re.MULTILINE)


def test_each_exit_code_of_the_guide_is_returned(shell: Shell) -> None:
    """A refused request, wrong usage, a server that is down, and nothing found end with the codes of the guide."""
    server = f"http://127.0.0.1:{free_port()}"
    seen = {
        "changing the request": shell.run("queue", "inspect", "missing").code,
        "correcting the usage": shell.run("queue", "inspect", "jobs", "--missing").code,
        "retrying later": CliRunner().invoke(cli, ["--server", server, "queue", "list"]).exit_code,
        "nothing: no message or value was found": shell.run("dequeue", "jobs").code,
    }
    assert seen == {text: int(code) for code, text in ROW.findall(GUIDE.read_text())}
