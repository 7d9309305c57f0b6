"""Settings: a file, the environment and flags, in rising strength, and what no server is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.errors import InvalidArgument
from fairlead.server.settings import ServerSettings, check, load


def test_the_stronger_source_wins() -> None:
    """A flag is stronger than the environment, and that than the file."""
    file = 'port = 1\nhost = "127.0.0.2"\nlog_format = "json"\nwaiting_max = 5'
    environ = {"FAIRLEAD_PORT": "2", "FAIRLEAD_HOST": "127.0.0.3", "FAIRLEAD_URL": "not ours"}
    settings = load(file, environ, {"port": 3, "host": None})
    assert (settings.port, settings.host, settings.log_format) == (3, "127.0.0.3", "json")
    assert settings.broker.waiting_max == 5


def test_without_settings_it_listens_on_loopback_only() -> None:
    """The defaults need no file, ask for no keys, and keep data with the user's state."""
    settings = load(None, {"HOME": "/home/me"}, {})
    check(settings)
    assert settings.is_loopback
    assert not settings.asks_for_keys
    assert settings.data == "/home/me/.local/state/fairlead"
    assert load(None, {"XDG_STATE_HOME": "/state"}, {}).data == "/state/fairlead"


@pytest.mark.parametrize(
    ("file", "environ", "flags", "word"),
    [
        ("port = ", {}, {}, "not TOML"),
        ("prot = 1", {}, {}, "'prot'"),
        ('port = "1"', {}, {}, "port in the file"),
        ("auth = 1", {}, {}, "auth in the file"),
        (None, {"FAIRLEAD_PORT": "x"}, {}, "FAIRLEAD_PORT"),
        (None, {"FAIRLEAD_INSECURE": "perhaps"}, {}, "FAIRLEAD_INSECURE"),
        (None, {"FAIRLEAD_DURABILITY": "none"}, {}, "FAIRLEAD_DURABILITY is one of fsync, os"),
        (None, {}, {"log_level": "loud"}, "--log-level"),
        (None, {}, {"prot": 1}, "--prot"),
        (None, {}, {"calls_max": "0"}, "calls_max"),
        (None, {}, {"waiting_max": -1}, "waiting_max"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_its_source(
    file: str | None, environ: dict[str, str], flags: dict[str, object], word: str
) -> None:
    """The error names the file's field, the variable or the flag."""
    with pytest.raises(InvalidArgument, match=word):
        load(file, environ, flags)


@pytest.mark.parametrize("text", ["1", "true", "Yes", "on"])
def test_truth_has_many_spellings(text: str) -> None:
    """A variable says yes in several ways, and nothing at all for None."""
    assert load(None, {"FAIRLEAD_AUTH": text}, {}).auth is True
    assert load(None, {"FAIRLEAD_AUTH": ""}, {}).auth is None


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (ServerSettings(port=70_000), "port"),
        (ServerSettings(grace_ms=-1), "grace_ms"),
        (ServerSettings(tls_certificate="a"), "go together"),
        (ServerSettings(tls_client_ca="a"), "tls_client_ca"),
        (ServerSettings(tls_certificate="/none", tls_key="/none"), "no file"),
        (ServerSettings(host="0.0.0.0"), "tls_certificate"),  # noqa: S104 - that is the point
        (ServerSettings(host="example.org", auth=False), "auth"),
    ],
)
def test_no_server_is_started_with(settings: ServerSettings, word: str) -> None:
    """What can't be, or would open a broker to the world, is refused with what to change."""
    with pytest.raises(InvalidArgument, match=word):
        check(settings)


def test_beyond_loopback_keys_and_tls_are_asked_for_unless_told_otherwise(tmp_path: Path) -> None:
    """With a certificate keys are asked for; with insecure neither is needed."""
    file = tmp_path / "file.pem"
    file.touch()
    safe = ServerSettings(host="10.0.0.1", tls_certificate=str(file), tls_key=str(file))
    check(safe)
    assert safe.asks_for_keys
    open_to_all = ServerSettings(host="10.0.0.1", insecure=True)
    check(open_to_all)
    assert not open_to_all.asks_for_keys
