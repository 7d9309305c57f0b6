"""Settings from a file, the environment and flags, and settings that are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.errors import InvalidArgument
from fairlane.server.settings import ServerSettings, check, load


def test_flags_override_the_environment_and_the_file() -> None:
    """A flag overrides the environment, which overrides the file."""
    file = 'port = 1\nhost = "127.0.0.2"\nlog_format = "json"\nwaiting_max = 5'
    environ = {"FAIRLANE_PORT": "2", "FAIRLANE_HOST": "127.0.0.3", "FAIRLANE_URL": "not ours"}
    settings = load(file, environ, {"port": 3, "host": None})
    assert (settings.port, settings.host, settings.log_format) == (3, "127.0.0.3", "json")
    assert settings.broker.waiting_max == 5


def test_without_settings_it_listens_on_loopback_only() -> None:
    """The defaults need no file, disable authentication, and store data in the user's state directory."""
    settings = load(None, {"HOME": "/home/me"}, {})
    check(settings)
    assert settings.is_loopback
    assert not settings.requires_auth
    assert settings.data == "/home/me/.local/state/fairlane"
    assert load(None, {"XDG_STATE_HOME": "/state"}, {}).data == "/state/fairlane"


@pytest.mark.parametrize(
    ("file", "environ", "flags", "word"),
    [
        ("port = ", {}, {}, "not valid TOML"),
        ("prot = 1", {}, {}, "'prot'"),
        ('port = "1"', {}, {}, "port in the settings file"),
        ("auth = 1", {}, {}, "auth in the settings file"),
        (None, {"FAIRLANE_PORT": "x"}, {}, "FAIRLANE_PORT"),
        (None, {"FAIRLANE_INSECURE": "perhaps"}, {}, "FAIRLANE_INSECURE"),
        (None, {"FAIRLANE_DURABILITY": "none"}, {}, "FAIRLANE_DURABILITY must be one of fsync, os"),
        (None, {}, {"log_level": "loud"}, "--log-level"),
        (None, {}, {"prot": 1}, "--prot"),
        (None, {}, {"calls_max": "0"}, "calls_max"),
        (None, {}, {"waiting_max": -1}, "waiting_max"),
        ("[lua]\ndefault_timeout = 1", {}, {}, "Did you mean 'lua.default_timeout_ms'"),
        (
            "hook_timeout_ms = 1\n[lua]\ndefault_timeout_ms = 2",
            {},
            {},
            "both lua.default_timeout_ms and hook_timeout_ms",
        ),
        ("lua = 1", {}, {}, "'lua'"),
        (None, {}, {"lua.timeout_ms": "1"}, "--lua.timeout-ms"),
        (None, {}, {"default_timeout_ms": "1"}, "--default-timeout-ms"),
    ],
)
def test_an_invalid_setting_is_rejected_with_its_source(
    file: str | None, environ: dict[str, str], flags: dict[str, object], word: str
) -> None:
    """The error names the file's field, the variable or the flag."""
    with pytest.raises(InvalidArgument, match=word):
        load(file, environ, flags)


def test_the_limits_of_scripts_have_filas_names_as_well() -> None:
    """Below ``[lua]`` in the file and with the prefix in flags; our own names work everywhere."""
    file = """
    [lua]
    default_timeout_ms = 20
    default_memory_limit_bytes = 2097152
    circuit_breaker_threshold = 5
    circuit_breaker_cooldown_ms = 30000
    """
    broker = load(file, {"FAIRLANE_HOOK_BREAKER_THRESHOLD": "6"}, {"lua.default_timeout_ms": "25"}).broker
    assert (broker.hook_timeout_ms, broker.hook_memory_bytes_max) == (25, 2_097_152)
    assert (broker.hook_breaker_threshold, broker.hook_breaker_cooldown_ms) == (6, 30_000)


@pytest.mark.parametrize("text", ["1", "true", "Yes", "on"])
def test_booleans_have_several_spellings(text: str) -> None:
    """A variable may be true in several ways; an empty one means None."""
    assert load(None, {"FAIRLANE_AUTH": text}, {}).auth is True
    assert load(None, {"FAIRLANE_AUTH": ""}, {}).auth is None


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (ServerSettings(port=70_000), "port"),
        (ServerSettings(grace_ms=-1), "grace_ms"),
        (ServerSettings(tls_certificate="a"), "must be set together"),
        (ServerSettings(tls_client_ca="a"), "tls_client_ca"),
        (ServerSettings(tls_ca="a"), "tls_ca is only for nodes"),
        (ServerSettings(node="n1", store="s3://bucket", tls_ca="/none"), "tls_ca: file '/none' does not exist"),
        (ServerSettings(tls_certificate="/none", tls_key="/none"), "does not exist"),
        (ServerSettings(host="0.0.0.0"), "tls_certificate"),  # noqa: S104 - it is rejected
        (ServerSettings(host="example.org", auth=False), "auth"),
    ],
)
def test_a_server_does_not_start_with(settings: ServerSettings, word: str) -> None:
    """Settings that cannot work, or would expose the server, are rejected with the remedy."""
    with pytest.raises(InvalidArgument, match=word):
        check(settings)


def test_other_addresses_than_loopback_require_api_keys_and_tls_unless_insecure(tmp_path: Path) -> None:
    """With a certificate API keys are required; with insecure neither is."""
    file = tmp_path / "file.pem"
    file.touch()
    safe = ServerSettings(host="10.0.0.1", tls_certificate=str(file), tls_key=str(file))
    check(safe)
    assert safe.requires_auth
    open_to_all = ServerSettings(host="10.0.0.1", insecure=True)
    check(open_to_all)
    assert not open_to_all.requires_auth


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"node": "a"}, "share a store"),
        ({"node": "a b", "store": "postgresql://db"}, "Invalid node name"),
        ({"advertise": "http://a:1"}, "set node to the name"),
        ({"node": "a", "store": "postgresql://db", "advertise": "a:1"}, "advertise must be a URL"),
        ({"node": "a", "store": "postgresql://db", "advertise": "http://a:1/path"}, "advertise must be a URL"),
        ({"node": "a", "store": "postgresql://db", "heartbeat_timeout_ms": "100"}, "timeout_ms must be 500"),
        ({"node": "a", "store": "postgresql://db", "groups_max": "0"}, "groups_max must be at least 1"),
        ({"node": "a", "store": "postgresql://db", "host": "::", "insecure": "true"}, "set advertise"),
    ],
)
def test_a_node_needs_a_store_a_name_and_an_address(flags: dict[str, object], word: str) -> None:
    """Settings that cannot make a node are rejected before anything is opened, with the remedy."""
    with pytest.raises(InvalidArgument, match=word):
        check(load(None, {"HOME": "/home/me"}, flags))


def test_a_node_is_named_by_settings() -> None:
    """A name and a store make a node; advertise is optional."""
    flags = {
        "node": "a",
        "store": "postgresql://db",
        "advertise": "https://a.example:7420",
        "heartbeat_timeout_ms": 2_000,
    }
    settings = load(None, {"HOME": "/home/me"}, flags)
    check(settings)
    assert (settings.node, settings.advertise, settings.heartbeat_timeout_ms, settings.groups_max) == (
        "a",
        "https://a.example:7420",
        2_000,
        32,
    )
