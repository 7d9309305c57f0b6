"""Settings of a server: from a file, the environment and flags. Each source overrides the one before."""

from __future__ import annotations

import ipaddress
import ssl
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from fairlane.assembly import Settings as BrokerSettings
from fairlane.assembly import is_place
from fairlane.cluster.node import GROUPS_MAX, HEARTBEAT_TIMEOUT_MS
from fairlane.errors import InvalidArgument
from fairlane.model.names import queue_name_fault
from fairlane.model.spelling import did_you_mean
from fairlane.server.addresses import networks_of
from fairlane.server.limits import CallLimits
from fairlane.server.metrics.scrape import KEYS_MAX, QUEUES_MAX

ENVIRONMENT_PREFIX: Final = "FAIRLANE_"
OTLP_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
MEMORY: Final = ":memory:"
PORT: Final = 7420
_GRPC_BYTES_MAX: Final = 2**31 - 1
_PORT_MAX: Final = 65_535
_TIMEOUT_MS_MIN, _TIMEOUT_MS_MAX = 500, 60_000
_ANY_ADDRESS: Final = frozenset(("0.0.0.0", "::"))  # noqa: S104 - compared with, not listened on
_METRICS_KEYS_MAX: Final = 1_000
_TRUTHS: Final = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What a server needs to know. Limits are those of the broker and the server, under the same names.

    Attributes:
        host: the address to listen on.
        port: the port to listen on; 0 for any free port.
        grpc_port: the port for gRPC, at the same address; 0 for any free port, None for no gRPC.
        data: the data directory; ``:memory:`` keeps everything in memory, for trials.
        store: the URL of a store, ``postgresql://``, ``s3://`` or ``az://``, or ``log:FOLDER`` or ``rocksdb:FOLDER``,
            to use instead of the data directory.
        node: the name of this node in a cluster that shares the store; None for a single server.
        advertise: the URL at which clients and other nodes reach this node, such as ``https://a.example:7420``; the
            address it listens on by default.
        heartbeat_timeout_ms: without a heartbeat for this long a node counts as dead, and others take over its queues.
        groups_max: the number of groups, each with a journal of its own, that new queues are spread over.
        durability: ``fsync`` survives power loss; ``os`` survives only a crash of the process.
        auth: require API keys; by default unless the server is bound to loopback.
        insecure: allow other addresses than loopback without API keys or TLS.
        allowed_hosts: more names that a ``Host`` header may have while authentication is disabled, separated by commas;
            ``*`` allows all.
        trusted_proxies: addresses and networks of proxies, separated by commas, whose ``X-Forwarded-For`` and
            ``X-Forwarded-Proto`` headers are believed.
        tls_certificate: a PEM file with the certificate of the server and its intermediate certificates.
        tls_key: a PEM file with the private key of the certificate.
        tls_ca: a PEM file with certificate authorities that this node trusts, besides those of the system, when it
            connects to other nodes; that of ``tls_client_ca`` by default.
        tls_client_ca: a PEM file with certificate authorities; if set, every client must present a certificate.
        spin: stay awake for a moment after a lone request, where at least two cores may be used.
        log_format: ``text`` or ``json`` lines.
        log_level: the lowest level that is logged.
        access_log: log every call as a line of JSON on standard error.
        grace_ms: how long a shutdown waits for messages in flight to be settled.
        otlp_endpoint: the OTLP endpoint that spans are exported to, such as ``http://localhost:4318``; the value of
            ``OTEL_EXPORTER_OTLP_ENDPOINT`` by default. None disables tracing.
        reports: a folder with the ``tables`` and ``report`` of the data pipeline, for the dashboard.
        metrics_queues_max: queues that get a label of their own in the metrics.
        metrics_keys_max: fairness keys of a queue that get a label of their own; 0 disables key metrics.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    grpc_port: int | None = None
    data: str = ""
    store: str | None = None
    node: str | None = None
    advertise: str | None = None
    heartbeat_timeout_ms: int = HEARTBEAT_TIMEOUT_MS
    groups_max: int = GROUPS_MAX
    durability: Literal["fsync", "os"] = "fsync"
    auth: bool | None = None
    insecure: bool = False
    allowed_hosts: str | None = None
    trusted_proxies: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    tls_client_ca: str | None = None
    spin: bool = False
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    access_log: bool = False
    grace_ms: int = 10_000
    otlp_endpoint: str | None = None
    reports: str | None = None
    metrics_queues_max: int = QUEUES_MAX
    metrics_keys_max: int = KEYS_MAX
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    limits: CallLimits = field(default_factory=CallLimits)

    @property
    def is_loopback(self) -> bool:
        """Whether the server is bound to loopback, so that only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def requires_auth(self) -> bool:
        """Whether callers need an API key."""
        return self.auth if self.auth is not None else not self.is_loopback and not self.insecure

    @property
    def has_tls(self) -> bool:
        """Whether the server uses TLS."""
        return self.tls_certificate is not None

    @property
    def peer_ca(self) -> str | None:
        """The file with the authorities of other nodes, besides those of the system."""
        return self.tls_ca or self.tls_client_ca


_SECTIONS: Final[dict[str, type[BrokerSettings] | type[CallLimits]]] = {"broker": BrokerSettings, "limits": CallLimits}


def _kinds() -> dict[str, tuple[str | None, Any]]:
    """Return the section and type of each setting by name."""
    own = get_type_hints(ServerSettings)
    kinds: dict[str, tuple[str | None, Any]] = {
        each.name: (None, own[each.name]) for each in fields(ServerSettings) if each.name not in _SECTIONS
    }
    for section, kind in _SECTIONS.items():
        hints = get_type_hints(kind)
        kinds |= {each.name: (section, hints[each.name]) for each in fields(kind)}
    return kinds


NAMES: Final = _kinds()
"""Every setting by name: its section (None for the server itself) and its type."""
_LUA: Final = {
    "lua.default_timeout_ms": "hook_timeout_ms",
    "lua.default_memory_limit_bytes": "hook_memory_bytes_max",
    "lua.circuit_breaker_threshold": "hook_breaker_threshold",
    "lua.circuit_breaker_cooldown_ms": "hook_breaker_cooldown_ms",
}
"""Fila's names for the limits of scripts, which files have below ``[lua]``, and our names."""


def load(file_text: str | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> ServerSettings:
    """Load settings from a file, the environment and flags. A flag that is None counts as not given.

    Raises:
        InvalidArgument: a value is invalid; the error names the setting and its source.
    """
    values: dict[str, object] = {}
    if environ.get(OTLP_VARIABLE):
        values["otlp_endpoint"] = environ[OTLP_VARIABLE]
    for name, value in _of_file(file_text).items():
        values[name] = _checked(name, value, f"{name} in the settings file")
    for name in NAMES:
        variable = ENVIRONMENT_PREFIX + name.upper()
        if variable in environ:
            values[name] = _of_text(name, environ[variable], variable)
    for given, value in flags.items():
        if value is not None:
            flag = "--" + given.replace("_", "-")
            name = _LUA.get(given, given)
            if name not in NAMES:
                raise InvalidArgument(f"Unknown setting {flag}.{did_you_mean(name, (*NAMES, *_LUA))}")
            values[name] = _of_text(name, value, flag) if isinstance(value, str) else _checked(name, value, flag)
    return _built(values, environ)


def _of_file(text: str | None) -> dict[str, object]:
    try:
        values = tomllib.loads(text or "")
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"The settings file is not valid TOML: {error}.") from error
    values = _with_lua(values)
    for name in values:
        if name not in NAMES:
            raise InvalidArgument(f"Unknown setting {name!r} in the settings file.{did_you_mean(name, NAMES)}")
    return values


def _with_lua(values: dict[str, object]) -> dict[str, object]:
    """Return the values of a file with those below ``[lua]`` under our names."""
    given = values.get("lua")
    if not isinstance(given, dict):
        return values
    rest = {name: value for name, value in values.items() if name != "lua"}
    for name, value in given.items():
        own = _LUA.get(f"lua.{name}")
        if own is None:
            question = did_you_mean(f"lua.{name}", _LUA)
            raise InvalidArgument(f"Unknown setting 'lua.{name}' in the settings file.{question}")
        if own in rest:
            raise InvalidArgument(f"The settings file has both lua.{name} and {own}; remove one.")
        rest[own] = value
    return rest


def _of_text(name: str, text: str, source: str) -> object:
    options = _options(NAMES[name][1])
    if text == "" and NoneType in options:
        return None
    if bool in options:
        if text.lower() not in _TRUTHS:
            raise InvalidArgument(f"{source} must be true or false, not {text!r}.")
        return _TRUTHS[text.lower()]
    if int in options:
        try:
            return int(text)
        except ValueError as error:
            raise InvalidArgument(f"{source} must be an integer, not {text!r}.") from error
    return _checked(name, text, source)


def _options(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - types have no common type
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _checked(name: str, value: object, source: str) -> object:
    kind = NAMES[name][1]
    if get_origin(kind) is Literal:
        if value not in (names := get_args(kind)):
            raise InvalidArgument(
                f"{source} must be one of {', '.join(names)}, not {value!r}.{did_you_mean(value, names)}"
            )
    elif type(value) not in _options(kind):
        wanted = " or ".join(option.__name__ for option in _options(kind) if option is not NoneType)
        raise InvalidArgument(f"{source} must be of type {wanted}, not {value!r}.")
    return value


def _built(values: Mapping[str, object], environ: Mapping[str, str]) -> ServerSettings:
    parts: dict[str | None, dict[str, Any]] = {None: {}, **{section: {} for section in _SECTIONS}}
    for name, value in values.items():
        parts[NAMES[name][0]][name] = value
    own = parts[None]
    own["data"] = own.get("data") or default_data(environ)
    try:
        broker, limits = BrokerSettings(**parts["broker"]), CallLimits(**parts["limits"])
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    if "payload_bytes_max" in values and broker.payload_bytes_max > limits.body_bytes_max:
        cause = f"payload_bytes_max ({broker.payload_bytes_max}) exceeds body_bytes_max ({limits.body_bytes_max})"
        raise InvalidArgument(f"{cause}: no request could hold such a payload. Raise body_bytes_max, too.")
    return ServerSettings(**own, broker=broker, limits=limits)


def default_data(environ: Mapping[str, str], platform: str = sys.platform) -> str:
    """Return the data directory that is used by default, where the platform keeps the data of programs."""
    if platform == "darwin" and "XDG_STATE_HOME" not in environ:
        return str(Path(environ.get("HOME", "~")).expanduser() / "Library" / "Application Support" / "fairlane")
    state = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".local" / "state")
    return str(Path(state) / "fairlane")


def check(settings: ServerSettings) -> None:
    """Reject settings that cannot work or would expose an unprotected server.

    Raises:
        InvalidArgument: the error says what to change.
    """
    _check_ports(settings)
    _check_store(settings)
    _check_node(settings)
    _check_files(settings)
    _check_endpoint(settings.otlp_endpoint)
    networks_of(settings.trusted_proxies, "trusted_proxies")
    _check_metrics(settings)
    if settings.grpc_port is not None and settings.limits.body_bytes_max > _GRPC_BYTES_MAX:
        raise InvalidArgument(
            f"body_bytes_max must be at most {_GRPC_BYTES_MAX} with grpc_port, not {settings.limits.body_bytes_max}."
        )
    if settings.grace_ms < 0:
        raise InvalidArgument(f"grace_ms must be at least 0, not {settings.grace_ms}.")
    if settings.is_loopback or settings.insecure:
        return
    if not settings.requires_auth:
        raise InvalidArgument(f"{settings.host} is not a loopback address: require API keys (auth), or set insecure.")
    if not settings.has_tls:
        raise InvalidArgument(
            f"{settings.host} is not a loopback address: set tls_certificate and tls_key, or set insecure."
        )


def _check_ports(settings: ServerSettings) -> None:
    for name in ("port", "grpc_port"):
        port = getattr(settings, name)
        if port is not None and not 0 <= port <= _PORT_MAX:
            raise InvalidArgument(f"{name} must be 0 to {_PORT_MAX}, not {port}.")


def _check_files(settings: ServerSettings) -> None:
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise InvalidArgument("tls_certificate and tls_key must be set together.")
    if settings.tls_client_ca is not None and not settings.has_tls:
        raise InvalidArgument("tls_client_ca requires tls_certificate and tls_key.")
    for name in ("tls_certificate", "tls_key", "tls_ca", "tls_client_ca"):
        file = getattr(settings, name)
        if file is not None and not Path(file).is_file():
            raise InvalidArgument(f"{name}: file {file!r} does not exist.")
    if settings.reports is not None and not Path(settings.reports).expanduser().is_dir():
        raise InvalidArgument(f"reports: folder {settings.reports!r:.200} does not exist.")


def _check_metrics(settings: ServerSettings) -> None:
    if settings.metrics_queues_max < 1:
        raise InvalidArgument(f"metrics_queues_max must be at least 1, not {settings.metrics_queues_max}.")
    if not 0 <= settings.metrics_keys_max <= _METRICS_KEYS_MAX:
        raise InvalidArgument(f"metrics_keys_max must be 0 to {_METRICS_KEYS_MAX}, not {settings.metrics_keys_max}.")


def _check_endpoint(endpoint: str | None) -> None:
    if endpoint is None:
        return
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgument(f"otlp_endpoint must be a URL such as http://localhost:4318, not {endpoint!r:.100}.")
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument("otlp_endpoint must not contain a password; use OTEL_EXPORTER_OTLP_HEADERS.")


def check_tls(settings: ServerSettings) -> None:
    """Reject certificate files that do not work, before the server opens anything.

    Raises:
        InvalidArgument: a file cannot be used; the error names it.
    """
    for name in ("tls_ca", "tls_client_ca"):
        _check_authorities(name, getattr(settings, name))
    if settings.tls_certificate is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.tls_certificate, settings.tls_key, password=""
        )  # without it, OpenSSL would ask for one on the terminal
    except (ssl.SSLError, OSError) as error:
        files = f"tls_certificate ({settings.tls_certificate}) and tls_key ({settings.tls_key})"
        raise InvalidArgument(f"{files} are not a certificate and its key: {error}.") from error


def _check_authorities(name: str, file: str | None) -> None:
    try:
        if file is not None:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except (ssl.SSLError, OSError) as error:
        raise InvalidArgument(f"{name} ({file}) has no usable certificates: {error}.") from error


def _check_store(settings: ServerSettings) -> None:
    if settings.store is not None and not is_place(settings.store):
        raise InvalidArgument(
            f"store must be a URL, log:FOLDER or rocksdb:FOLDER, not {settings.store!r}; use data for a directory."
        )
    if settings.store is not None and settings.data == MEMORY:
        raise InvalidArgument("store and data=:memory: cannot be combined.")


def _check_node(settings: ServerSettings) -> None:
    if settings.node is None:
        _check_single(settings)
        return
    if settings.store is None:
        raise InvalidArgument("node requires store: the nodes of a cluster share a store.")
    if (fault := queue_name_fault(settings.node)) is not None:
        raise InvalidArgument(fault.replace("queue name", "node name"))
    if not _TIMEOUT_MS_MIN <= settings.heartbeat_timeout_ms <= _TIMEOUT_MS_MAX:
        raise InvalidArgument(
            f"heartbeat_timeout_ms must be {_TIMEOUT_MS_MIN} to {_TIMEOUT_MS_MAX}, got {settings.heartbeat_timeout_ms}."
        )
    if settings.groups_max < 1:
        raise InvalidArgument(f"groups_max must be at least 1, not {settings.groups_max}.")
    if settings.advertise is None:
        if settings.host in _ANY_ADDRESS:
            raise InvalidArgument(
                f"Other nodes cannot connect to {settings.host}; set advertise to the URL of this node."
            )
        return
    parts = urlsplit(settings.advertise)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise InvalidArgument(
            f"advertise must be a URL such as https://a.example:7420, not {settings.advertise!r:.100}."
        )


def _check_single(settings: ServerSettings) -> None:
    for name in ("advertise", "tls_ca"):
        if getattr(settings, name) is not None:
            raise InvalidArgument(f"{name} is only for nodes of a cluster; set node to the name of this node.")
