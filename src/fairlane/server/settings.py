"""How a server is started: from a file, the environment and flags, each stronger than the one before."""

from __future__ import annotations

import ipaddress
import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from fairlane.assembly import Settings as BrokerSettings
from fairlane.assembly import is_url
from fairlane.cluster.node import GROUPS_MAX, HEARTBEAT_TIMEOUT_MS
from fairlane.errors import InvalidArgument
from fairlane.model.names import queue_name_fault
from fairlane.model.spelling import did_you_mean
from fairlane.server.limits import CallLimits
from fairlane.server.metrics.scrape import KEYS_MAX, QUEUES_MAX

ENVIRONMENT_PREFIX: Final = "FAIRLANE_"
OTLP_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
MEMORY: Final = ":memory:"
PORT: Final = 7420
_PORT_MAX: Final = 65_535
_TIMEOUT_MS_MIN, _TIMEOUT_MS_MAX = 500, 60_000
_ANY_ADDRESS: Final = frozenset(("0.0.0.0", "::"))  # noqa: S104 - to be refused, not to be listened on
_METRICS_KEYS_MAX: Final = 1_000
_TRUTHS: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What a server needs to know. Limits are those of the broker and the server, under the same names.

    Attributes:
        host: the address to listen on.
        port: the port to listen on; 0 for any that is free.
        grpc_port: the port to listen on for gRPC, at the same address; 0 for any that is free, None for no gRPC.
        data: the folder of the data; ``:memory:`` keeps everything in memory, for trials.
        store: the URL of the store, ``postgresql://`` or ``s3://``, where messages shall not be in the folder.
        node: the name of this node, if it is one of several that share the store; None for a server alone.
        advertise: the address by which clients and other nodes reach this node, such as ``https://a.example:7420``; by
            default the one it listens on.
        heartbeat_timeout_ms: without a heartbeat for this long a node counts as dead, and others take over its queues.
        groups_max: how many groups new queues make, each with a journal of its own, before they join those there are.
        durability: ``fsync`` survives power loss, ``os`` only the death of the process.
        auth: whether keys are asked for; by default beyond loopback only.
        insecure: listen beyond loopback without keys or TLS all the same.
        tls_certificate: a file with the certificate of the server, and those between it and the root.
        tls_key: a file with its key.
        tls_client_ca: a file with the certificates that vouch for clients, who then must have one.
        log_format: lines of ``text`` or of ``json``.
        log_level: the least that is logged.
        grace_ms: how long a server that goes down waits for what has been leased to be acked.
        otlp_endpoint: where spans are sent over OTLP, such as ``http://localhost:4318``; by default what the variable
            ``OTEL_EXPORTER_OTLP_ENDPOINT`` says. None for nowhere.
        reports: a folder whose ``tables`` and ``report``, made by the data pipeline, the dashboard shows.
        metrics_queues_max: how many queues have a label of their own in the metrics.
        metrics_keys_max: how many fairness keys of a queue have one; 0 for none.
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
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    grace_ms: int = 10_000
    otlp_endpoint: str | None = None
    reports: str | None = None
    metrics_queues_max: int = QUEUES_MAX
    metrics_keys_max: int = KEYS_MAX
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    limits: CallLimits = field(default_factory=CallLimits)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def asks_for_keys(self) -> bool:
        """Whether callers need a key."""
        return self.auth if self.auth is not None else not self.is_loopback and not self.insecure

    @property
    def has_tls(self) -> bool:
        """Whether the server speaks TLS."""
        return self.tls_certificate is not None


_INSIDE: Final = {"broker": BrokerSettings, "limits": CallLimits}


def _kinds() -> dict[str, tuple[str | None, Any]]:
    """Return where each setting lives, and what it is, by name."""
    own = get_type_hints(ServerSettings)
    kinds: dict[str, tuple[str | None, Any]] = {
        each.name: (None, own[each.name]) for each in fields(ServerSettings) if each.name not in _INSIDE
    }
    for place, kind in _INSIDE.items():
        hints = get_type_hints(kind)
        kinds |= {each.name: (place, hints[each.name]) for each in fields(kind)}
    return kinds


NAMES: Final = _kinds()
"""Every setting by name: where it lives, and its type."""


def load(file_text: str | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> ServerSettings:
    """Return the settings that a file, the environment and flags say. A flag that is None says nothing.

    Raises:
        InvalidArgument: one of them makes no sense; the cause says which and where.
    """
    values: dict[str, object] = {}
    if environ.get(OTLP_VARIABLE):
        values["otlp_endpoint"] = environ[OTLP_VARIABLE]
    for name, value in _of_file(file_text).items():
        values[name] = _checked(name, value, f"{name} in the file")
    for name in NAMES:
        variable = ENVIRONMENT_PREFIX + name.upper()
        if variable in environ:
            values[name] = _of_text(name, environ[variable], variable)
    for name, value in flags.items():
        if value is not None:
            flag = "--" + name.replace("_", "-")
            if name not in NAMES:
                raise InvalidArgument(f"There is no setting {flag}.{did_you_mean(name, NAMES)}")
            values[name] = _of_text(name, value, flag) if isinstance(value, str) else _checked(name, value, flag)
    return _built(values, environ)


def _of_file(text: str | None) -> dict[str, object]:
    try:
        values = tomllib.loads(text or "")
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"The settings file is not TOML: {error}.") from error
    for name in values:
        if name not in NAMES:
            raise InvalidArgument(f"The settings file has {name!r}, which is no setting.{did_you_mean(name, NAMES)}")
    return values


def _of_text(name: str, text: str, source: str) -> object:
    options = _options(NAMES[name][1])
    if text == "" and NoneType in options:
        return None
    if bool in options:
        if text.lower() not in _TRUTHS:
            raise InvalidArgument(f"{source} is true or false, not {text!r}.")
        return _TRUTHS[text.lower()]
    if int in options:
        try:
            return int(text)
        except ValueError as error:
            raise InvalidArgument(f"{source} is a whole number, not {text!r}.") from error
    return _checked(name, text, source)


def _options(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - types have no common type
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _checked(name: str, value: object, source: str) -> object:
    kind = NAMES[name][1]
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            told = f"{source} is one of {', '.join(get_args(kind))}, not {value!r}."
            raise InvalidArgument(told + did_you_mean(value, get_args(kind)))
    elif type(value) not in _options(kind):
        wanted = " or ".join(option.__name__ for option in _options(kind) if option is not NoneType)
        raise InvalidArgument(f"{source} is of type {wanted}, not {value!r}.")
    return value


def _built(values: Mapping[str, object], environ: Mapping[str, str]) -> ServerSettings:
    parts: dict[str | None, dict[str, Any]] = {None: {}, **{place: {} for place in _INSIDE}}
    for name, value in values.items():
        parts[NAMES[name][0]][name] = value
    own = parts[None]
    own["data"] = own.get("data") or default_data(environ)
    try:
        broker, limits = BrokerSettings(**parts["broker"]), CallLimits(**parts["limits"])
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    return ServerSettings(**own, broker=broker, limits=limits)


def default_data(environ: Mapping[str, str]) -> str:
    """Return the folder for data of a user who names none."""
    state = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".local" / "state")
    return str(Path(state) / "fairlane")


def check(settings: ServerSettings) -> None:
    """Refuse settings with which no server should be started.

    Raises:
        InvalidArgument: the cause says what to change.
    """
    if not 0 <= settings.port <= _PORT_MAX:
        raise InvalidArgument(f"A port is a number from 0 to {_PORT_MAX}, not {settings.port}.")
    if settings.grpc_port is not None and not 0 <= settings.grpc_port <= _PORT_MAX:
        raise InvalidArgument(f"A port is a number from 0 to {_PORT_MAX}, not {settings.grpc_port}.")
    _check_store(settings)
    _check_node(settings)
    if settings.grace_ms < 0:
        raise InvalidArgument(f"grace_ms is at least 0, not {settings.grace_ms}.")
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise InvalidArgument("tls_certificate and tls_key go together.")
    if settings.tls_client_ca is not None and not settings.has_tls:
        raise InvalidArgument("tls_client_ca needs tls_certificate and tls_key.")
    for name in ("tls_certificate", "tls_key", "tls_client_ca"):
        file = getattr(settings, name)
        if file is not None and not Path(file).is_file():
            raise InvalidArgument(f"{name} names {file!r}, which is no file.")
    _check_endpoint(settings.otlp_endpoint)
    if settings.reports is not None and not Path(settings.reports).expanduser().is_dir():
        raise InvalidArgument(f"reports names {settings.reports!r:.200}, which is no folder.")
    _check_metrics(settings)
    if settings.is_loopback or settings.insecure:
        return
    if not settings.asks_for_keys:
        raise InvalidArgument(f"{settings.host} is beyond loopback: ask for keys (auth), or say insecure.")
    if not settings.has_tls:
        raise InvalidArgument(f"{settings.host} is beyond loopback: give tls_certificate and tls_key, or say insecure.")


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
        raise InvalidArgument(f"otlp_endpoint is a URL such as http://localhost:4318, not {endpoint!r:.100}.")
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument("otlp_endpoint has a password in it: say it with OTEL_EXPORTER_OTLP_HEADERS.")


def check_tls(settings: ServerSettings) -> None:
    """Refuse files that no TLS can be spoken with, before anything is opened.

    Raises:
        InvalidArgument: the cause says which of them.
    """
    if settings.tls_certificate is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key, password="")  # nobody is there to be asked
    except (ssl.SSLError, OSError) as error:
        raise InvalidArgument(f"tls_certificate and tls_key are no certificate and its key: {error}.") from error
    try:
        if settings.tls_client_ca is not None:
            context.load_verify_locations(settings.tls_client_ca)
    except (ssl.SSLError, OSError) as error:
        raise InvalidArgument(f"tls_client_ca holds no certificates: {error}.") from error


def _check_store(settings: ServerSettings) -> None:
    if settings.store is not None and not is_url(settings.store):
        raise InvalidArgument(f"store is a URL, not {settings.store!r}; a folder is named by data.")
    if settings.store is not None and settings.data == MEMORY:
        raise InvalidArgument("store and data=:memory: exclude each other.")


def _check_node(settings: ServerSettings) -> None:
    if settings.node is None:
        if settings.advertise is not None:
            raise InvalidArgument("advertise is for the nodes of a cluster: give this one a name with node.")
        return
    if settings.store is None:
        raise InvalidArgument("The nodes of a cluster share a store: name it by its URL with store.")
    if (fault := queue_name_fault(settings.node)) is not None:
        raise InvalidArgument(fault.replace("A queue's name", "The name of a node"))
    if not _TIMEOUT_MS_MIN <= settings.heartbeat_timeout_ms <= _TIMEOUT_MS_MAX:
        raise InvalidArgument(
            f"heartbeat_timeout_ms must be {_TIMEOUT_MS_MIN} to {_TIMEOUT_MS_MAX}, got {settings.heartbeat_timeout_ms}."
        )
    if settings.groups_max < 1:
        raise InvalidArgument(f"groups_max is at least 1, not {settings.groups_max}.")
    if settings.advertise is None:
        if settings.host in _ANY_ADDRESS:
            raise InvalidArgument(f"{settings.host} is no address that others could call: say which with advertise.")
        return
    parts = urlsplit(settings.advertise)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise InvalidArgument(f"advertise is a URL such as https://a.example:7420, not {settings.advertise!r:.100}.")
