"""A health check of the server in the same container: ``python -m fairlane.probe [/healthz | /readyz]``.

It reads the environment that the server was started with, and exits with 0 if the server answers 200. A server that
requires client certificates is shown its own, because a health check has no other. It imports little, since containers
run it every few seconds.
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from typing import Final

_LOOPBACK: Final = "127.0.0.1"
_ANSWER_S: Final = 2.0


def status(path: str, environ: Mapping[str, str]) -> int:
    """Return the HTTP status with which the server answers. Raises OSError or HTTPException if it does not."""
    host, port = _host(environ), int(environ.get("FAIRLANE_PORT") or 7420)
    tls = _context(environ)
    plain = HTTPConnection(host, port, timeout=_ANSWER_S)
    connection = plain if tls is None else HTTPSConnection(host, port, timeout=_ANSWER_S, context=tls)
    connection.request("GET", path)
    return connection.getresponse().status


def _host(environ: Mapping[str, str]) -> str:
    """Return where a server that listens there can be reached from the same machine."""
    host = environ.get("FAIRLANE_HOST") or _LOOPBACK
    try:
        return _LOOPBACK if ip_address(host).is_unspecified else host
    except ValueError:
        return host  # a name


def _context(environ: Mapping[str, str]) -> ssl.SSLContext | None:
    certificate = environ.get("FAIRLANE_TLS_CERTIFICATE")
    if not certificate:
        return None
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False  # the certificate is for the name that others use
    tls.verify_mode = ssl.CERT_NONE
    tls.load_cert_chain(certificate, environ.get("FAIRLANE_TLS_KEY"))
    return tls


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    """Ask the server; return the exit code, and say on standard error what is wrong."""
    path = arguments[0] if arguments else "/healthz"
    try:
        answered = status(path, environ)
    except (OSError, HTTPException) as error:
        sys.stderr.write(f"{path}: {type(error).__name__}: {error}\n")
        return 1
    if answered != HTTPStatus.OK:
        sys.stderr.write(f"{path}: HTTP status {answered}\n")
    return int(answered != HTTPStatus.OK)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
