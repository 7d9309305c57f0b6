"""The open connections of a server: whom each counts against, and which one is closed when there are too many.

A connection is *unknown* until the server accepts a request on it, and counts against the address it comes from. From
that request on it counts against the API key of the caller, so that clients behind one proxy don't share a limit. While
authentication is disabled it keeps counting against its address.

A new connection over a limit displaces the oldest unknown one. So a client that opens connections and sends nothing
displaces only its own, and a client with an API key can always connect. Known connections are never displaced; if all
are known, the server refuses the new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from fairlane.errors import TooManyConnections
from fairlane.gateway.caller import Caller
from fairlane.server.addresses import Network, block_of, is_among
from fairlane.server.limits import CallLimits
from fairlane.server.receiving.arrivals import Arrivals

SCOPE_KEY: Final = "fairlane.connection"
"""Where the scope of a request has its ``OpenConnection``; only our own server puts it there."""
REASONS: Final = (
    *("connections_max", "connections_per_address_max", "connections_per_key_max", "descriptors", "displaced"),
    *("head_timeout", "body_timeout", "handshake_timeout", "idle_timeout", "malformed"),
)
"""Why the server refuses or closes a connection."""
CALLS_PER_CONNECTION: Final = 4
"""Calls over gRPC at a time, for each connection that is allowed; most of them wait for messages."""
_RETRY_AFTER_MS: Final = 1_000


@dataclass(slots=True, eq=False)
class OpenConnection:
    """One open connection.

    Attributes:
        address: the address it comes from.
        holder: what it counts against now: a block of addresses, or an API key.
        api_key: the id of the API key it counts against; None while authentication is disabled, and empty as long as
            the connection is unknown.
        close: closes it without an answer; does nothing before the server has begun to serve it.
        is_open: whether it is still counted.
    """

    address: str
    holder: str
    close: Callable[[], object] = lambda: None
    api_key: str | None = ""
    is_open: bool = True


class Connections:
    """All open connections of a server.

    Attributes:
        limits: the limits that apply.
        closed: how many connections the server has closed or refused, by reason; see ``REASONS``.
    """

    def __init__(self, limits: CallLimits, *, trusted: Sequence[Network] = ()) -> None:
        self.limits = limits
        self._trusted = trusted
        self._open: set[OpenConnection] = set()
        self._held: Counter[str] = Counter()
        # Unknown ones, oldest first: of each address, and of all.
        self._unknown: dict[str, dict[OpenConnection, None]] = {}
        self._oldest: dict[OpenConnection, None] = {}
        self.closed: Counter[str] = Counter()
        self.arrivals = Arrivals(limits.arriving_total_bytes_max)
        """The requests that are being received."""

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, address: str, *, is_last: bool = False) -> OpenConnection | None:
        """Count a new connection, or return None if there are too many.

        Args:
            address: where it comes from.
            is_last: whether no file descriptor is left for it unless another connection is closed.
        """
        holder, limits = block_of(address), self.limits
        if self._held[holder] >= limits.connections_per_address_max and not is_among(address, self._trusted):
            if not self._displace(self._unknown.get(holder)):
                self.closed["connections_per_address_max"] += 1
                return None
        elif (is_last or len(self._open) >= limits.connections_max) and not self._displace(self._oldest):
            self.closed["descriptors" if is_last else "connections_max"] += 1
            return None
        connection = OpenConnection(address, holder)
        self._open.add(connection)
        self._held[holder] += 1
        self._unknown.setdefault(holder, {})[connection] = None
        self._oldest[connection] = None
        return connection

    def _displace(self, unknown: dict[OpenConnection, None] | None) -> bool:
        """Close the oldest of some unknown connections, and return whether there was one."""
        if not unknown:
            return False
        oldest = next(iter(unknown))
        self.end(oldest)
        self.closed["displaced"] += 1
        oldest.close()
        return True

    def claim(self, connection: OpenConnection, caller: Caller) -> None:
        """Count a connection against the caller whose request it carries.

        Raises:
            TooManyConnections: the API key of the caller has ``connections_per_key_max`` connections already.
        """
        if not connection.is_open or connection.api_key == caller.id:
            return
        holder = block_of(connection.address) if caller.id is None else f"key {caller.id}"
        most = self.limits.connections_per_key_max
        if caller.id is not None and self._held[holder] >= most:
            self.closed["connections_per_key_max"] += 1
            cause = f"API key {caller.name!r} has {self._held[holder]} connections; connections_per_key_max is {most}."
            raise TooManyConnections(cause, retry_after_ms=_RETRY_AFTER_MS)
        self._forget_unknown(connection)
        self._leave(connection.holder)
        self._held[holder] += 1
        connection.holder, connection.api_key = holder, caller.id

    def end(self, connection: OpenConnection) -> None:
        """Stop counting a connection. Ending it twice does nothing."""
        if not connection.is_open:
            return
        connection.is_open = False
        self._open.discard(connection)
        self._forget_unknown(connection)
        self._leave(connection.holder)

    def _forget_unknown(self, connection: OpenConnection) -> None:
        if connection.api_key != "":
            return
        del self._oldest[connection]
        same = self._unknown[connection.holder]
        del same[connection]
        if not same:
            del self._unknown[connection.holder]

    def _leave(self, holder: str) -> None:
        self._held[holder] -= 1
        if not self._held[holder]:
            del self._held[holder]


@dataclass(slots=True, eq=False)
class _Calls:
    """The calls of one caller: how many, and on each connection."""

    count: int = 0
    by_connection: Counter[str] = field(default_factory=Counter)


class CallsInProgress:
    """The calls over gRPC that each caller has in progress, and the connections that they are on.

    gRPC accepts its connections itself. It shows one only with a call, and not when it is closed. So a connection
    counts against a caller for as long as a call of that caller on it is in progress.
    """

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self._calls: dict[str, _Calls] = {}

    def begin(self, caller: Caller, holder: str, connection: str) -> Callable[[], None]:
        """Count a call, and return what to call when it has ended.

        Args:
            caller: whose call it is.
            holder: whom it counts against.
            connection: names the connection it is on.

        Raises:
            TooManyConnections: the caller has as many calls, or connections with calls, as it may.
        """
        name = "connections_per_address_max" if caller.id is None else "connections_per_key_max"
        most: int = getattr(self._limits, name)
        calls = self._calls.get(holder) or _Calls()
        if calls.count >= CALLS_PER_CONNECTION * most:
            cause = f"{calls.count} gRPC calls are in progress; {CALLS_PER_CONNECTION} times {name} is the most."
            raise TooManyConnections(f"{_whose(caller)}: {cause}", retry_after_ms=_RETRY_AFTER_MS)
        if connection not in calls.by_connection and len(calls.by_connection) >= most:
            cause = f"{len(calls.by_connection)} gRPC connections have calls in progress; {name} is {most}."
            raise TooManyConnections(f"{_whose(caller)}: {cause}", retry_after_ms=_RETRY_AFTER_MS)
        self._calls[holder] = calls
        calls.count += 1
        calls.by_connection[connection] += 1
        return partial(self._end, holder, connection)

    def _end(self, holder: str, connection: str) -> None:
        calls = self._calls[holder]
        calls.count -= 1
        calls.by_connection[connection] -= 1
        if not calls.by_connection[connection]:
            del calls.by_connection[connection]
        if not calls.count:
            del self._calls[holder]


def _whose(caller: Caller) -> str:
    return "This address" if caller.id is None else f"API key {caller.name!r}"
