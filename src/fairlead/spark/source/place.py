"""Where a server is, as it travels from the driver to the executors, and the ways to it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

from fairlead.client import Client
from fairlead.errors import Disconnected, InvalidArgument
from fairlead.wire.errors import ErrorAnswer, error_of

ARROW: Final = "application/vnd.apache.arrow.stream"
_OK: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A server, and who we are to it. It can be pickled; connections are made where they are used."""

    server: str
    api_key: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    certificate_key: str | None = None
    timeout_s: float = 30.0

    def client(self) -> Client:
        """Return a client, to be used as a context manager."""
        return Client(self.server, api_key=self.api_key, tls=self._tls(), timeout=self.timeout_s)

    @contextmanager
    def arrow(self, path: str, query: Mapping[str, str]) -> Iterator[HTTPResponse]:
        """Ask for an Arrow stream with GET.

        Raises:
            FairleadError: what the server answers instead.
            Disconnected: it does not answer.
        """
        connection = self._connection()
        try:
            headers = {"accept": ARROW}
            if self.api_key is not None:
                headers["authorization"] = f"Bearer {self.api_key}"
            connection.request("GET", f"{path}?{urlencode(query)}", headers=headers)
            answer = connection.getresponse()
            if answer.status != _OK:
                raise error_of(msgspec.json.decode(answer.read(), type=ErrorAnswer).error)
            yield answer
        except (OSError, HTTPException, msgspec.DecodeError) as error:
            raise Disconnected(f"Reading {path} from {self.server} broke off: {error!r:.200}.") from error
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        parts = urlsplit(self.server)
        if parts.hostname is None or parts.scheme not in ("http", "https", "ws", "wss"):
            raise InvalidArgument(f"A server is an address such as http://127.0.0.1:7420, not {self.server!r:.100}.")
        if parts.scheme in ("https", "wss"):
            context = self._tls() or ssl.create_default_context()
            return HTTPSConnection(parts.hostname, parts.port, timeout=self.timeout_s, context=context)
        return HTTPConnection(parts.hostname, parts.port, timeout=self.timeout_s)

    def _tls(self) -> ssl.SSLContext | None:
        if self.ca is None and self.certificate is None:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.certificate_key)
        return context
