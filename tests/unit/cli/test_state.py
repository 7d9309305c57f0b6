"""Tests of the commands ``state``."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.shell import Shell
from tests.unit.cli.test_leases import leased


def test_state_is_written_and_read(shell: Shell, tmp_path: Path) -> None:
    """Each version replaces the version that the caller knows."""
    known = leased(shell)
    assert shell.run("state", "get", env=known).code == 4
    line = shell.ok("state", "put", env=known, feed=b"half \xff").out
    name, _, etag = line.removeprefix("export ").strip().partition("=")
    assert shell.ok("-o", "json", "state", "get", env=known).json == {"state_base64": "aGFsZiD/", "etag": etag}
    (tmp_path / "state").write_text("done")
    said = shell.ok("-o", "json", "state", "put", "--file", str(tmp_path / "state"), env=known | {name: etag}).json
    assert said["etag"] != etag
    assert shell.ok("state", "get", env=known).out == "done"
    assert shell.ok("state", "put", "--remove", "--etag", said["etag"], env=known).out.startswith("unset ")
    assert shell.run("state", "get", env=known).code == 4


def test_an_outdated_version_is_refused(shell: Shell) -> None:
    """A caller cannot overwrite a newer version, or the state of a message that it has not leased."""
    known = leased(shell)
    shell.ok("state", "put", env=known, feed=b"1")
    assert shell.run("-o", "json", "state", "put", env=known, feed=b"2").error["code"] == "state_mismatch"
    stale = known | {"FAIRLANE_QUEUE_TOKEN": "1"}
    assert shell.run("-o", "json", "state", "put", env=stale, feed=b"2").error["code"] == "lease_mismatch"
    assert shell.run("state", "put", env=stale | {"FAIRLANE_QUEUE_TOKEN": "x"}, feed=b"2").code == 2
