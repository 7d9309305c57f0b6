"""The curl commands of the HTTP reference, run as they are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.waiting import PATIENCE_S

from .server_process import ROOT, serving

PAGE = (ROOT / "docs" / "reference" / "http.md").read_text()
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="it is about curl")
def test_the_commands_of_the_http_reference_work(tmp_path: Path) -> None:
    """On a new server each command returns what the page says, and none fails."""
    first, way, dead = BLOCK.findall(PAGE)[:3]
    opening = [line for line in first.splitlines() if line.startswith("post()")]
    with serving(tmp_path / "data") as server:
        script = "\n".join(["set -eu", f"F=http://{server.address}/v1", *opening, way, dead])
        result = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path
        )
    assert (result.returncode, result.stderr) == (0, "")
    answers = result.stdout.split("\n")
    assert '"error":{' not in result.stdout
    assert answers[0] == "{}"
    found = re.fullmatch(r'\{"results":\[\{"id":"([-0-9a-f]{36})","correlation_id":"\1"\}\]\}', answers[1])
    assert found is not None, answers[1]
    assert '"reason":"no_consumer"' in answers[2]
    assert '"token":5,"payload":"aGVsbG8="' in answers[3]
    assert answers[6] == '{"results":[{}]}'
