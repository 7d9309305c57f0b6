"""The address of a server or cluster, which the driver sends to executors, connections to it, and retries."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

from fairlane.client import Client, Retries
from fairlane.client.cluster_transport import addresses_of
from fairlane.client.retries import is_passing, pause_s
from fairlane.client.transport.websocket import FOLLOWS
from fairlane.errors import Closed, Disconnected, FairlaneError, InvalidArgument, StoreFenced
from fairlane.verbs.errors import error_of
from fairlane.wire.errors import ErrorAnswer
from fairlane.wire.tls import client_context

ARROW: Final = "application/vnd.apache.arrow.stream"
_OK: Final = 200
_CONNECT_S, _ANSWER_S = 3.0, 10.0
"""How long one of several nodes may take to connect, and to answer, before the next one is tried."""
_FIND_S: Final = 1.0
"""The timeout of one search for a queue's owner. Callers repeat the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """A server, or some nodes of a cluster, and the credentials for it.

    It can be pickled; connections are made where they are used.
    """

    server: str
    api_key: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    certificate_key: str | None = None
    timeout_s: float = 30.0

    @property
    def addresses(self) -> list[str]:
        """The addresses of the server or the nodes. Raises InvalidArgument if there is none."""
        return addresses_of(self.server)

    def options(self) -> dict[str, str]:
        """Return the address as options of ``format("fairlane")``."""
        return {name: str(value) for name, value in asdict(self).items() if value is not None}

    def near(self, at: str | None) -> ServerAddress:
        """Return this address with a node that has answered before as the first to try."""
        return self if at is None else replace(self, server=",".join(dict.fromkeys([at, *self.addresses])))

    def client(self, *, retries: Retries | None = None) -> Client:
        """Return a client, to be used as a context manager. It finds the node that owns a queue."""
        return Client(self.server, api_key=self.api_key, tls=self._tls(), timeout=self.timeout_s, retries=retries)

    @contextmanager
    def working(self) -> Iterator[Client]:
        """Return a connected client; it retries while the server is unreachable.

        Raises:
            Disconnected: it was away for longer than a client has patience.
        """
        patience = Patience()
        while True:
            client = self.client()
            try:
                client.connect()
            except Disconnected as error:
                patience.wait(error)
            else:
                break
        with closing(client):
            yield client

    def owner_of(self, queue: str) -> str:
        """Return the address of the node that has a queue and its journal.

        Raises:
            Disconnected, QueueMoving: there is none that answers, or none that has it now.
        """
        with self.client(retries=Retries(patience_s=_FIND_S)) as client:
            client.readers(queue=queue)
            return client.address_of(queue)

    @contextmanager
    def arrow(self, path: str, query: Mapping[str, str], *, at: str | None = None) -> Iterator[HTTPResponse]:
        """Request an Arrow stream with GET, from an address, by default the first.

        Raises:
            FairlaneError: what the server answers instead.
            Disconnected: it does not answer.
        """
        address = self.addresses[0] if at is None else at
        connection, prefix = self._connection(address)
        try:
            headers = {"accept": ARROW, FOLLOWS: "1"}
            if self.api_key is not None:
                headers["authorization"] = f"Bearer {self.api_key}"
            connection.connect()
            connection.sock.settimeout(self._at_most(_ANSWER_S))
            connection.request("GET", f"{prefix}{path}?{urlencode(query)}", headers=headers)
            answer = connection.getresponse()
            if answer.status != _OK:
                raise error_of(msgspec.json.decode(answer.read(), type=ErrorAnswer).error)
            yield answer
        except (OSError, HTTPException, msgspec.DecodeError) as error:
            raise Disconnected(f"Reading {path} from {address} ended early: {error!r:.200}.") from error
        finally:
            connection.close()

    def _connection(self, address: str) -> tuple[HTTPConnection, str]:
        """Return an unopened connection, and the prefix of paths there."""
        parts = urlsplit(address)
        if parts.hostname is None or parts.scheme not in ("http", "https", "ws", "wss"):
            raise InvalidArgument(f"Invalid server address {address!r:.100}. Use a URL such as http://127.0.0.1:7420.")
        timeout_s = self._at_most(_CONNECT_S)
        prefix = parts.path.rstrip("/")
        if parts.scheme in ("https", "wss"):
            context = self._tls() or client_context()
            return HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=context), prefix
        return HTTPConnection(parts.hostname, parts.port, timeout=timeout_s), prefix

    def _at_most(self, seconds: float) -> float:
        """Return how long to wait for a server: less if there are other nodes to ask."""
        return min(seconds, self.timeout_s) if len(self.addresses) > 1 else self.timeout_s

    def _tls(self) -> ssl.SSLContext | None:
        if self.ca is None and self.certificate is None:
            return None
        return client_context(ca=self.ca, certificate=self.certificate, certificate_key=self.certificate_key)


class Patience:
    """Waits between retries, longer each time, up to a time limit that starts with the first failure."""

    def __init__(self, retries: Retries | None = None) -> None:
        self._retries = retries or Retries()
        self.renew()

    def renew(self) -> None:
        """Restart the time limit, because there was progress."""
        self._waits_s = self._retries.waits_s()
        self._until_s: float | None = None

    def wait(self, error: FairlaneError) -> None:
        """Wait after a failure.

        Raises:
            FairlaneError: the failure itself, if it will not pass, or has not for too long.
        """
        now_s = time.monotonic()
        if self._until_s is None:
            self._until_s = now_s + self._retries.patience_s
        if not is_of_the_moment(error) or now_s >= self._until_s:
            raise error
        threading.Event().wait(pause_s(error, next(self._waits_s)))


def is_of_the_moment(error: FairlaneError) -> bool:
    """Return whether a retry may succeed, later or on another node: a node may be shutting down or fenced."""
    return is_passing(error) or isinstance(error, Closed | StoreFenced)
