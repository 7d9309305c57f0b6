"""Tests of the commands ``key``, on a data folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlane.cli.main import cli
from tests.unit.cli.shell import Shell


def test_an_api_key_is_created_listed_and_revoked(shell: Shell, tmp_path: Path) -> None:
    """An API key is printed once, listed without its secret, and gone when revoked."""
    on = ["--data", str(tmp_path / "data")]
    grants = ["--grant", "produce:orders:acme,bakery", "--grant", "consume:mail.*", "--grant", "admin"]
    grants += ["--grant", "produce:orders:acme::acme-*,load"]
    outcome = shell.ok(*on, "key", "create", "ci", *grants, "--expires-in", "30d")
    secret = outcome.out.strip()
    assert secret.startswith("fl_")
    assert secret not in outcome.err
    (key,) = shell.ok(*on, "-o", "json", "key", "list").json
    assert key["grants"][3] == {"right": "produce", "queues": "orders", "keys": ["acme"], "sinks": ["acme-*", "load"]}
    assert (key["name"], key["expires_ms"] - key["created_ms"]) == ("ci", pytest.approx(30 * 86_400_000, abs=60_000))
    table = shell.ok(*on, "key", "list").out
    assert "produce:orders:acme,bakery, consume:mail.*, admin:*, produce:orders:acme::acme-*,load" in table
    assert secret.rpartition("_")[2] not in table
    shell.ok(*on, "key", "revoke", key["id"])
    assert shell.ok(*on, "-o", "json", "key", "list").json == []
    assert shell.run(*on, "key", "revoke", key["id"]).code == 1


def test_json_has_the_key(shell: Shell, tmp_path: Path) -> None:
    """The JSON output has the id and the API key."""
    said = shell.ok("--data", str(tmp_path), "-o", "json", "key", "create", "ci", "--grant", "admin").json
    assert said["key"].startswith(f"fl_{said['id']}_")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 2),
        (["--grant", "fly"], 2),
        (["--grant", "produce:a*b"], 1),
        (["--grant", "consume:orders:acme"], 1),
        (["--grant", "admin", "--expires-in", "soon"], 2),
    ],
)
def test_an_invalid_api_key_is_refused(shell: Shell, tmp_path: Path, options: list[str], code: int) -> None:
    """An invalid request is refused."""
    assert shell.run("--data", str(tmp_path), "key", "create", "ci", *options).code == code


@pytest.mark.parametrize(("server", "code"), [("ftp://x", 1), ("http://127.0.0.1:1", 3), ("nonsense", 1)])
def test_an_invalid_server_address_is_refused(server: str, code: int) -> None:
    """An unreachable server is unavailable; an invalid address is refused."""
    assert CliRunner().invoke(cli, ["--server", server, "key", "list"]).exit_code == code
