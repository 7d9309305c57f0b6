"""The settings of a server on the command line: the options of ``serve`` and ``config check``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlane.cli.parameters import DURATION, PAIR
from fairlane.cli.session import Session
from fairlane.errors import InvalidArgument

if TYPE_CHECKING:  # the other commands need no server
    from fairlane.server.settings import ServerSettings

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(exists=True, dir_okay=False)
SETTINGS_FILE = click.option(
    "--config",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar="FAIRLANE_CONFIG",
    show_envvar=True,
    help="TOML file with settings; the environment and options override it.",
)
_PORT = click.IntRange(0, 65_535)
_OPTIONS = (
    SETTINGS_FILE,
    click.option("--host", help="Address to listen on. Default: 127.0.0.1, reachable from this machine only."),
    click.option("--port", type=_PORT, help="Port to listen on; 0 for any free port. Default: 7420."),
    click.option("--grpc-port", type=_PORT, help="Port for gRPC. Default: no gRPC."),
    click.option("--data", metavar="FOLDER", help="Data folder; :memory: keeps everything in memory."),
    click.option("--store", metavar="URL", help="Store messages at postgresql://, s3:// or az:// instead."),
    click.option("--node", metavar="NAME", help="Join the cluster that shares the store, under this name."),
    click.option("--advertise", metavar="URL", help="Address at which clients and nodes reach this node."),
    click.option(
        "--durability",
        type=click.Choice(["fsync", "os"]),
        help="fsync survives power loss; os survives only a crash of the process. Default: fsync.",
    ),
    click.option("--auth/--no-auth", default=None, help="Require API keys. Default: unless bound to loopback."),
    click.option("--insecure", is_flag=True, default=None, help="Allow other machines without API keys and TLS."),
    click.option("--tls-certificate", type=FILE, help="Certificate of the server."),
    click.option("--tls-key", type=FILE, help="Private key of the certificate."),
    click.option("--tls-ca", type=FILE, help="CA of other nodes' certificates. Default: --tls-client-ca."),
    click.option("--tls-client-ca", type=FILE, help="CA that signs client certificates, which are then required."),
    click.option("--log-format", type=click.Choice(["text", "json"]), help="Format of log lines."),
    click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Lowest level to log."),
    click.option("--grace", type=DURATION, help="How long a shutdown waits for acknowledgements."),
    click.option("--requests-per-second", type=click.IntRange(min=1), help="Request rate allowed per caller."),
    click.option(
        "--requests-burst", type=click.IntRange(min=1), help="Requests allowed at once. Default: those of one second."
    ),
    click.option("--otlp-endpoint", metavar="URL", help="Where to send traces. Default: OTEL_EXPORTER_OTLP_ENDPOINT."),
    click.option("--reports", metavar="FOLDER", help="Folder whose tables and report the dashboard shows."),
    click.option("--set", "pairs", multiple=True, type=PAIR, help="Any other setting; repeatable."),
)


def server_options(function: F) -> F:
    """Add the options of a server's settings to a command, which passes them to ``settings_of``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def settings_of(session: Session, path: Path | None, options: Mapping[str, Any]) -> ServerSettings:
    """Return the settings of a server from its file, the environment and options.

    Raises:
        InvalidArgument: a setting is not valid.
    """
    flags = {name.replace("-", "_"): value for name, value in options["pairs"]}
    flags |= {name: value for name, value in options.items() if value is not None and name not in ("grace", "pairs")}
    flags |= {} if options["grace"] is None else {"grace_ms": options["grace"]}
    flags.setdefault("data", session.endpoint.data)
    return load_settings(path, flags)


def load_settings(path: Path | None, flags: Mapping[str, object]) -> ServerSettings:
    """Return the server settings from a file, the environment and command-line options.

    Raises:
        InvalidArgument: a setting is not valid.
    """
    from fairlane.server.settings import load

    try:
        return load(None if path is None else path.read_text(), os.environ, flags)
    except InvalidArgument as error:
        if path is None:
            raise
        named = error.cause.replace("the settings file", str(path)).replace("The settings file", str(path))
        raise InvalidArgument(named) from error


def settings_by_name(settings: ServerSettings) -> dict[str, object]:
    """Return all settings by name, without passwords."""
    from fairlane.assembly import shown_url
    from fairlane.server.settings import NAMES

    owners = {name: settings if owner is None else getattr(settings, owner) for name, (owner, _) in NAMES.items()}
    values = {name: getattr(owner, name) for name, owner in owners.items()}
    return values if settings.store is None else values | {"store": shown_url(settings.store)}
