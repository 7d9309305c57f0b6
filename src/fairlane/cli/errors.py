"""Exit codes, and error messages for people and for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import click

from fairlane.cli.formatting import printable
from fairlane.errors import Closed, Disconnected, FairlaneError, Unauthenticated, UnavailableError

OK: Final = 0
REFUSED: Final = 1
UNAVAILABLE: Final = 3
NOTHING: Final = 4
INTERRUPTED: Final = 130
_EXTRA: Final = re.compile(r"install fairlane\[(\w+)\]")
_EXTRAS: Final = {
    "click": "cli",
    "deltalake": "delta",
    "grpc": "grpc",
    "httpx": "http",
    "obstore": "s3",
    "opentelemetry": "otel",
    "plotly": "report",
    "prometheus_client": "prometheus",
    "psycopg": "postgres",
    "pyarrow": "arrow",
    "pyiceberg": "iceberg",
    "pyspark": "spark",
    "rich": "cli",
    "uvicorn": "server",
    "websockets": "client",
}
"""The smallest extra that brings each package."""
_KEY: Final = (
    "Pass a valid API key with --api-key or FAIRLANE_API_KEY; an operator creates one with `fairlane key create`."
)
_CLIENT_CERTIFICATE: Final = (
    "The server may require a client certificate that it trusts: pass a valid one with --tls-cert and --tls-key."
)
_REMEDIES: Final = (
    (
        "certificate has expired",
        "Renew the certificate of the server and send the server SIGHUP, or correct the clock of this machine.",
    ),
    ("certificate is not yet valid", "Correct the clock of this machine, or wait until the certificate is valid."),
    (
        "(Hostname|IP address) mismatch",
        "Pass an address that the certificate is for with --server, or give the server a certificate for this address.",
    ),
    ("ALERT_(CERTIFICATE|BAD_CERTIFICATE|UNKNOWN_CA)", _CLIENT_CERTIFICATE),
    ("wss://.* did not receive a valid HTTP response", _CLIENT_CERTIFICATE),
    ("CERTIFICATE_VERIFY_FAILED", "Pass the certificate authority of the server with --tls-ca or FAIRLANE_CLIENT_CA."),
    ("did not receive a valid HTTP response", "The server may use TLS: pass its address with https:// to --server."),
    ("WRONG_VERSION_NUMBER", "The server does not use TLS: pass its address with http:// to --server."),
    ("Address already in use", "Another process uses the port, perhaps Fairlane: pass another one with --port."),
    ("Cannot listen on", "Pass an address of this machine with --host, and a free port with --port."),
    (
        r"require API keys \(auth\)",
        "Leave out --no-auth, or pass --insecure if only trusted machines reach the server.",
    ),
    ("set tls_certificate and tls_key", "Pass --tls-certificate and --tls-key, or --insecure behind a TLS proxy."),
    ("Cannot use the folder of the store", "Check the folder and its permissions, or pass another one."),
    (
        "has the store open",
        "Stop the server that uses it, or pass its address with --server instead of the folder.",
    ),
    ("only a dead letter is retried", "See its status with `fairlane message show ID`."),
    ("Invalid server address", "Write the scheme: --server http://HOST:PORT, or https:// for a server with TLS."),
)
"""What helps on the command line, by a pattern in the cause; the first one that is found counts."""
_NO_SERVER: Final = "Start a server with `fairlane serve`, or pass the address of a running one with --server."


class Quit(click.exceptions.Exit):
    """Ends the command with an exit code. The command has already printed its message."""


def exit_code_of(error: BaseException) -> int:
    """Return the exit code for an error."""
    match error:
        case click.ClickException():
            return error.exit_code
        case UnavailableError() | Closed() | ConnectionError() | TimeoutError():
            return UNAVAILABLE
    return REFUSED


def facts_of(error: BaseException) -> dict[str, object]:
    """Return the code, the cause and the remedy of an error, as programs read them."""
    match error:
        case FairlaneError():
            facts: dict[str, object] = {"code": error.code, "cause": error.cause, "remedy": _remedy_of(error)}
            retry_after_ms = getattr(error, "retry_after_ms", None)
            return facts if retry_after_ms is None else facts | {"retry_after_ms": retry_after_ms}
        case click.ClickException():
            code = "usage" if isinstance(error, click.UsageError) else "file"
            return {"code": code, "cause": error.format_message(), "remedy": _usage_remedy(error)}
        case ConnectionError() | TimeoutError():
            return {"code": "disconnected", "cause": f"Cannot reach the server: {error}.", "remedy": _NO_SERVER}
        case ImportError():
            return _missing(error)
        case OSError():
            return {"code": "file", "cause": f"{error}.", "remedy": "Check the path and its permissions."}
    return {"code": "internal", "cause": f"{error}", "remedy": "Report this as a bug."}


def known_remedy(cause: str) -> str | None:
    """Return what helps against a cause on the command line, or None if the error's own remedy does."""
    return next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, cause)), None)


def _remedy_of(error: FairlaneError) -> str:
    """Return what to do about an error, in the words of the command line."""
    if (found := known_remedy(error.cause)) is not None:
        return found
    if (told := _EXTRA.search(error.cause)) is not None:
        return _install(told[1])
    if isinstance(error, Unauthenticated):
        return _KEY
    if not isinstance(error, Disconnected):
        return error.remedy
    return _NO_SERVER if error.cause.startswith("Cannot connect") else f"{_NO_SERVER} {error.remedy}"


def _usage_remedy(error: click.ClickException) -> str:
    """Return what to do about a usage error.

    Users often write an option of ``fairlane`` itself after the command, so that mistake gets a remedy of its own.
    """
    context: click.Context | None = getattr(error, "ctx", None)
    if context is None:
        return "Correct it and run the command again."
    root = context.find_root()
    options = {name for parameter in root.command.params for name in parameter.opts}
    if isinstance(error, click.NoSuchOption) and context is not root and error.option_name in options:
        command = context.command_path.removeprefix(root.command_path).strip()
        return f"Write it before the command: {root.command_path} {error.option_name} ... {command} ..."
    return f"See {context.command_path} --help."


def names_extra(error: ImportError) -> bool:
    """Return whether an error says which extra of Fairlane to install, or names a package that one of them brings."""
    return _EXTRA.search(str(error)) is not None or (error.name or "").partition(".")[0] in _EXTRAS


def _install(extra: str) -> str:
    return f"Install the extra that brings it: fairlane[{extra}]."


def _missing(error: ImportError) -> dict[str, object]:
    """Return the facts about a package that is not installed, with the extra that brings it."""
    told = _EXTRA.search(str(error))
    package = (error.name or "").partition(".")[0]
    extra = told[1] if told is not None else _EXTRAS.get(package)
    cause = f"This command needs the Python package {package}, which is not installed."
    if told is not None:
        cause = f"{str(error)[: told.start()].rstrip(' :;')}."
    remedy = "Install the package." if extra is None else _install(extra)
    return {"code": "missing", "cause": cause, "remedy": remedy}


def report(error: BaseException, *, is_json: bool) -> None:
    """Print an error to standard error. Without a command, print the help instead."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        if not is_json:
            error.show()
            return
        error = click.UsageError("Missing command.", error.ctx)
    report_facts(facts_of(error), is_json=is_json)


def report_facts(facts: Mapping[str, object], *, is_json: bool) -> None:
    """Print the facts of an error to standard error."""
    if is_json:
        click.echo(json.dumps({"error": facts}, ensure_ascii=False), err=True)
        return
    head = click.style(f"error[{facts['code']}]", fg="red", bold=True)
    click.echo(f"{head}: {printable(str(facts['cause']))}", err=True)
    click.echo(f"remedy: {facts['remedy']}", err=True)


def wants_json(error: BaseException, arguments: list[str]) -> bool:
    """Return whether the caller asked for JSON, even if its arguments could not be parsed."""
    context = getattr(error, "ctx", None)
    if context is not None and "output" in context.find_root().params:
        return bool(context.find_root().params["output"] == "json")
    pairs = pairwise(arguments)
    return (
        "--output=json" in arguments
        or "-ojson" in arguments
        or any(name in ("--output", "-o") and value == "json" for name, value in pairs)
    )
