"""The server under attack: plain HTTP and stream connections, and what its machine shows of it."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from fairlane import Client
from fairlane.errors import FairlaneError
from fairlane.verbs.keys import Grant

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
PREFIX: Final = "attack-"
_SUCCESS: Final = range(200, 300)
_KB: Final = 1024


def pause(seconds: float) -> None:
    """Do nothing for a while: an attacker that is silent, or a tenant between two calls."""
    threading.Event().wait(seconds)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens."""

    host: str
    port: int
    is_tls: bool

    @classmethod
    def of(cls, url: str) -> Address:
        """Return the address in a URL."""
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        return cls(parts.hostname or "127.0.0.1", parts.port or (443 if is_tls else 80), is_tls)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"{'https' if self.is_tls else 'http'}://{self.host}:{self.port}"

    def connect(self, *, timeout_s: float = 60.0) -> http.client.HTTPConnection:
        """Return an HTTP connection that is opened by its first request."""
        if self.is_tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)

    def socket(self, *, timeout_s: float = 10.0) -> socket.socket:
        """Return a TCP connection on which nothing has been sent."""
        return socket.create_connection((self.host, self.port), timeout=timeout_s)


@dataclass(frozen=True, slots=True)
class Response:
    """The status of an answer and its content, if it was JSON."""

    status: int
    content: Any = None

    @property
    def is_success(self) -> bool:
        """Whether the request succeeded."""
        return self.status in _SUCCESS


def request(
    connection: http.client.HTTPConnection,
    path: str,
    body: bytes,
    *,
    api_key: str | None = None,
    content_type: str = JSON,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the answer to a POST."""
    sent = {"Content-Type": content_type, "Accept": JSON} | dict(headers or {})
    if api_key is not None:
        sent["Authorization"] = f"Bearer {api_key}"
    connection.request("POST", f"/v1/{path}", body, sent)
    answer = connection.getresponse()
    content = answer.read()
    try:
        return Response(answer.status, msgspec.json.decode(content))
    except msgspec.DecodeError:
        return Response(answer.status)


@dataclass(slots=True)
class AttackedServer:
    """The server under attack.

    Attributes:
        admin: a client that may do everything, for preparations.
        admin_key: its API key; None if the server requires none.
        grpc: the address of gRPC, if the server has it.
        pid: the process of the server, if it runs on this machine.
        log: the log of the server, if it can be read.
        data: the data directory, if it can be read.
    """

    address: Address
    admin: Client
    admin_key: str | None = None
    grpc: str | None = None
    pid: int | None = None
    log: Path | None = None
    data: Path | None = None
    _queues: list[str] = field(default_factory=list)
    _keys: list[str] = field(default_factory=list)
    _config: list[str] = field(default_factory=list)

    @property
    def has_keys(self) -> bool:
        """Whether the server requires API keys. Without them, attacks on rights mean nothing."""
        return self.admin_key is not None

    def queue(self, name: str, **policy: object) -> str:
        """Create a queue for an attack, and return its name."""
        full = PREFIX + name
        self.admin.create_queue(full, policy)
        self._queues.append(full)
        return full

    def api_key(self, name: str, *grants: Grant) -> str | None:
        """Create an API key for an attack, and return its secret; None if the server requires no keys."""
        if not self.has_keys:
            return None
        created = self.admin.create_key(PREFIX + name, grants)
        self._keys.append(created.id)
        return created.key

    def configure(self, key: str, value: str) -> None:
        """Set a config key for an attack."""
        self.admin.set_config(key, value)
        self._config.append(key)

    def clean(self) -> None:
        """Remove everything that the last attack created."""
        for remove, names in (
            (self.admin.delete_queue, self._queues),
            (self.admin.revoke_key, self._keys),
            (lambda key: self.admin.set_config(key, None), self._config),
        ):
            while names:
                try:
                    remove(names.pop())
                except FairlaneError:
                    continue

    def post(
        self,
        path: str,
        body: object,
        *,
        api_key: str | None = None,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Return the answer to a POST on a connection of its own. Bytes are sent as they are.

        A server that closes the connection before it has read the body answers too; that is status 0 if the answer
        was lost with the connection.
        """
        sent = body if isinstance(body, bytes) else msgspec.json.encode(body)
        connection = self.address.connect()
        try:
            return request(connection, path, sent, api_key=api_key, content_type=content_type, headers=headers)
        except (OSError, http.client.HTTPException):
            return Response(0)
        finally:
            connection.close()

    def stream(self, api_key: str | None) -> ClientConnection:
        """Return a stream connection."""
        scheme = "wss" if self.address.is_tls else "ws"
        return connect(
            f"{scheme}://{self.address.host}:{self.address.port}/v1/stream",
            subprotocols=[Subprotocol("fairlane.v1")],
            compression=None,
            max_size=None,
            additional_headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
        )

    # ---------------------------------------------------------------------------------------------------------- memory

    def forget_peak(self) -> None:
        """Make the kernel forget the largest memory that the server has had."""
        if self.pid is not None:
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def memory(self, field_name: str) -> int | None:
        """Return the memory of the server in bytes: ``VmRSS`` for now, ``VmHWM`` for the peak; None if unknown."""
        if self.pid is None:
            return None
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        found = next(line for line in lines if line.startswith(field_name + ":"))
        return int(found.split()[1]) * _KB
