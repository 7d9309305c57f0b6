"""Tests of the commands ``serve`` and ``config check``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlane.cli.session import Endpoint
from fairlane.server import run
from fairlane.server.settings import NAMES, ServerSettings
from tests.unit.cli.shell import Shell


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServerSettings]:
    """Return the settings of the servers that would have been started."""
    found: list[ServerSettings] = []

    def note(settings: ServerSettings, **_: Any) -> None:
        found.append(settings)

    monkeypatch.setattr(run, "serve", note)
    return found


def test_flags_win_over_environment_and_file(shell: Shell, served: list[ServerSettings], tmp_path: Path) -> None:
    """Each option is a setting; --set takes the others."""
    (tmp_path / "fairlane.toml").write_text('port = 1\nlog_level = "error"\nhost = "::1"\ngrace_ms = 1\n')
    flags = ["--port", "3", "--grace", "5s", "--durability", "os", "--no-auth", "--insecure", "--set", "calls-max=7"]
    shell.ok("serve", "--config", str(tmp_path / "fairlane.toml"), *flags, env={"FAIRLANE_HOST": "127.0.0.2"})
    (settings,) = served
    assert (settings.port, settings.host, settings.log_level, settings.grace_ms) == (3, "127.0.0.2", "error", 5_000)
    assert (settings.durability, settings.auth, settings.insecure) == ("os", False, True)
    assert settings.limits.calls_max == 7


def test_without_options_the_defaults_hold(shell: Shell, served: list[ServerSettings], tmp_path: Path) -> None:
    """Without options the defaults hold; --data works before and after the command."""
    shell.ok("serve", env={"XDG_STATE_HOME": str(tmp_path)})
    shell.ok("--data", "/one", "serve")
    shell.ok("serve", "--data", "/two")
    assert [settings.data for settings in served] == [str(tmp_path / "fairlane"), "/one", "/two"]
    assert (served[0].auth, served[0].insecure, served[0].host) == (None, False, "127.0.0.1")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--port", "70000"], 2),
        (["--durability", "maybe"], 2),
        (["--set", "nope=1"], 1),
        (["--set", "calls_max=many"], 1),
        (["--config", "/nowhere"], 2),
        (["--tls-key", "/nowhere"], 2),
    ],
)
def test_an_invalid_setting_starts_no_server(
    shell: Shell, served: list[ServerSettings], arguments: list[str], code: int
) -> None:
    """An invalid setting is refused, and no server is started."""
    assert (shell.run("serve", *arguments).code, served) == (code, [])


def test_settings_are_checked(shell: Shell, tmp_path: Path) -> None:
    """The settings that a server would start with are shown, and invalid ones are refused."""
    (tmp_path / "good.toml").write_text("port = 1234\n")
    (tmp_path / "bad.toml").write_text('host = "0.0.0.0"\nauth = false\n')
    (tmp_path / "worse.toml").write_text("port = \n")
    said = shell.ok("-o", "json", "config", "check", "--config", str(tmp_path / "good.toml")).json
    assert (said["port"], said["calls_max"]) == (1234, 1024)
    assert "port " in shell.ok("config", "check").out
    flags = ["--port", "77", "--grace", "5s", "--set", "calls_max=9", "--config", str(tmp_path / "good.toml")]
    said = shell.ok("-o", "json", "config", "check", *flags).json
    assert (said["port"], said["grace_ms"], said["calls_max"]) == (77, 5_000, 9)
    assert shell.run("config", "check", "--host", "192.0.2.1", "--no-auth").code == 1
    for name in ("bad.toml", "worse.toml"):
        outcome = shell.run("-o", "json", "config", "check", "--config", str(tmp_path / name))
        assert (outcome.code, outcome.error["code"]) == (1, "invalid_argument")


def test_the_folder_is_that_of_the_server(tmp_path: Path) -> None:
    """A server keeps its store one folder deeper than an embedded broker; both are found."""
    assert Endpoint(data=str(tmp_path)).store == tmp_path / "store"
    assert Endpoint(data=str(tmp_path / "new")).store == tmp_path / "new" / "store"
    (tmp_path / "CURRENT").touch()
    assert Endpoint(data=str(tmp_path)).store == tmp_path
    (tmp_path / "store").mkdir()
    assert Endpoint(data=str(tmp_path)).store == tmp_path / "store"
    assert Endpoint().store is None
    assert Endpoint().tls() is None


def test_every_setting_is_in_the_help(shell: Shell) -> None:
    """Settings without an option of their own are listed with their defaults."""
    told = shell.ok("serve", "--help").out
    flags = {"grace_ms": "--grace"}
    for name in NAMES:
        assert flags.get(name, "--" + name.replace("_", "-")) in told or f"\n  {name} " in told, name


def test_a_port_for_grpc_a_rate_and_an_endpoint_are_flags(shell: Shell, served: list[ServerSettings]) -> None:
    """These settings have options of their own."""
    flags = ["--grpc-port", "0", "--requests-per-second", "5", "--requests-burst", "9", "--otlp-endpoint", "http://a:1"]
    shell.ok("serve", *flags)
    (settings,) = served
    assert (settings.grpc_port, settings.otlp_endpoint) == (0, "http://a:1")
    assert (settings.limits.requests_per_second, settings.limits.requests_burst) == (5, 9)
