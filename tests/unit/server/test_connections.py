"""Limits on connections: in total, by address and by API key; and which connection goes when there are too many."""

from __future__ import annotations

import errno
import resource
import socket
from typing import cast

import pytest

from fairlane.errors import InvalidArgument, TooManyConnections
from fairlane.gateway.caller import ANYBODY, Caller
from fairlane.server.acceptor import Acceptor
from fairlane.server.addresses import block_of, networks_of
from fairlane.server.connections import Connections, OpenConnection
from fairlane.server.descriptors import fit
from fairlane.server.interfaces.http_connection import HttpConnection
from fairlane.server.limits import CallLimits
from tests.kit.servers.listening import listening
from tests.kit.waiting import until
from tests.unit.server.local_server import run

ANN, BOB = Caller("ann", (), "a1"), Caller("bob", (), "b1")
STATS = {"queue": "orders"}


class Opened:
    """Connections that note which of them were closed."""

    def __init__(self, limits: CallLimits, *, trusted: str = "") -> None:
        self.connections = Connections(limits, trusted=networks_of(trusted, "trusted_proxies"))
        self.closed: list[str] = []

    def open(self, name: str, address: str = "10.0.0.1", *, is_last: bool = False) -> OpenConnection | None:
        connection = self.connections.begin(address, is_last=is_last)
        if connection is not None:
            connection.close = lambda: self.closed.append(name)
        return connection

    def known(self, caller: Caller, address: str = "10.0.0.1") -> OpenConnection:
        connection = self.open("known", address)
        assert connection is not None
        self.connections.claim(connection, caller)
        return connection


def test_a_new_connection_displaces_the_oldest_unknown_one_of_its_address() -> None:
    """One address only displaces its own connections, the oldest first."""
    opened = Opened(CallLimits(connections_per_address_max=2))
    opened.open("other", "10.0.0.9")
    for name in "abcd":
        assert opened.open(name) is not None
    assert opened.closed == ["a", "b"]
    assert len(opened.connections) == 3
    assert dict(opened.connections.closed) == {"displaced": 2}


def test_a_full_server_displaces_the_oldest_unknown_connection_of_all() -> None:
    """However many addresses send nothing, a new connection gets in; those of callers stay."""
    opened = Opened(CallLimits(connections_max=3))
    opened.known(ANN, "10.0.0.1")
    opened.open("a", "10.0.0.2")
    opened.open("b", "10.0.0.3")
    assert opened.open("c", "10.0.0.4") is not None
    assert opened.closed == ["a"]
    assert len(opened.connections) == 3


def test_known_connections_are_never_displaced() -> None:
    """Where all connections belong to callers, a new one is refused, and the reason is counted."""
    opened = Opened(CallLimits(connections_max=2, connections_per_address_max=1))
    opened.known(ANYBODY, "10.0.0.1")
    assert opened.open("same address", "10.0.0.1") is None
    opened.known(ANYBODY, "10.0.0.2")
    assert opened.open("another", "10.0.0.3") is None
    assert opened.closed == []
    assert dict(opened.connections.closed) == {"connections_per_address_max": 1, "connections_max": 1}


def test_without_descriptors_a_connection_needs_the_place_of_another() -> None:
    """The last descriptors stay free, whatever the limits say."""
    opened = Opened(CallLimits())
    assert opened.open("a", is_last=True) is None
    opened.open("b")
    assert opened.open("c", is_last=True) is not None
    assert opened.closed == ["b"]
    assert opened.connections.closed["descriptors"] == 1


def test_a_caller_counts_against_its_api_key_and_not_its_address() -> None:
    """Clients behind one proxy don't share a limit, and one API key can't take the connections of another."""
    opened = Opened(CallLimits(connections_per_address_max=1, connections_per_key_max=2))
    first = opened.known(ANN)
    opened.known(ANN)
    third = opened.open("third")
    assert third is not None
    with pytest.raises(TooManyConnections, match="'ann' has 2 connections; connections_per_key_max is 2"):
        opened.connections.claim(third, ANN)
    opened.connections.claim(third, BOB)
    opened.connections.end(first)
    opened.known(ANN)
    assert opened.closed == []


def test_a_connection_that_changes_its_caller_counts_once() -> None:
    """A proxy may send requests of several callers over one connection."""
    opened = Opened(CallLimits(connections_per_key_max=1))
    shared = opened.known(ANN)
    opened.connections.claim(shared, BOB)
    opened.known(ANN)
    for _ in range(2):
        opened.connections.end(shared)
    opened.known(BOB)
    assert len(opened.connections) == 2


def test_a_trusted_proxy_has_no_limit_by_address() -> None:
    """Its connections are those of all clients behind it."""
    opened = Opened(CallLimits(connections_per_address_max=1), trusted="10.0.0.0/24, ::1")
    for _ in range(3):
        opened.known(ANYBODY, "10.0.0.7")
        opened.known(ANYBODY, "::1")
    opened.known(ANYBODY, "10.0.1.7")
    assert opened.open("refused", "10.0.1.7") is None


@pytest.mark.parametrize(
    ("address", "block"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:9::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("unix", "unix"),
        ("a:b", "a:b"),
        (None, ""),
    ],
)
def test_addresses_of_one_host_count_as_one(address: str | None, block: str) -> None:
    """An IPv6 host has a whole /64 to itself."""
    assert block_of(address) == block


def test_networks_that_are_none_are_rejected() -> None:
    """The error names the setting."""
    with pytest.raises(InvalidArgument, match=r"trusted_proxies must be addresses .* 'nowhere'"):
        networks_of("10.0.0.1, nowhere", "trusted_proxies")


def test_silent_connections_do_not_keep_a_caller_out() -> None:
    """While one address holds as many silent connections as it may, a client with an API key is served from there."""

    async def main() -> None:
        async with listening(CallLimits(connections_per_address_max=4), requires_auth=True) as server:
            key = await server.key()
            silent = [await server.connect() for _ in range(12)]
            await until(lambda: server.context.connections.closed["displaced"] == 8, "the oldest are displaced")
            wire = await server.connect()
            assert (await wire.ask("/v1/queue/stats", STATS, key=key)).status == 200
            more = [await server.connect() for _ in range(12)]
            await more[7].rest()
            assert (await wire.ask("/v1/queue/stats", STATS, key=key)).status == 200
            assert (await silent[0].rest(), len(server.context.connections)) == (b"", 5)

    run(main())


def test_connections_of_callers_over_the_limit_are_refused() -> None:
    """With authentication disabled every address has its limit; one over it is answered with 503."""

    async def main() -> None:
        async with listening(CallLimits(connections_per_address_max=2)) as server:
            for _ in range(2):
                assert (await (await server.connect()).ask("/v1/queue/stats", STATS)).status == 200
            refused = await (await server.connect()).ask("/v1/queue/stats", STATS)
            assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "too_many_connections", "1")

    run(main())


class ExhaustedListener:
    """A listening socket with a connection for which the process has no file descriptor."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._theirs.send(b"a connection")

    def fileno(self) -> int:
        return self._ours.fileno()

    def accept(self) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


def _none() -> HttpConnection:
    raise AssertionError("there is no connection to serve")


def test_a_server_starts_where_its_limit_of_files_can_not_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some systems refuse a soft limit below the hard one; the server then accepts fewer connections."""

    def refuse(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    limits, first_reserved = fit(CallLimits(), listeners=1)
    assert (limits.connections_max, limits.connections_per_key_max, first_reserved) == (960, 480, 960)


def test_a_process_without_descriptors_does_not_fill_its_log(caplog: pytest.LogCaptureFixture) -> None:
    """The server tries again ten times a second and counts each time, and logs it every ten seconds."""

    async def main() -> None:
        connections, listener = Connections(CallLimits()), ExhaustedListener()
        acceptor = Acceptor(cast("socket.socket", listener), connections, _none, handshake_s=1)
        acceptor.start()
        await until(lambda: connections.closed["descriptors"] == 3, "the server tries again")
        await acceptor.stop()

    run(main())
    assert [record.getMessage() for record in caplog.records] == [
        "Accepting no connections for a moment: Too many open files."
    ]


def test_an_api_key_over_its_limit_is_refused() -> None:
    """The request is answered with 429, another API key is served, and a closed connection makes place."""

    async def main() -> None:
        async with listening(CallLimits(connections_per_key_max=1), requires_auth=True) as server:
            ann, bob = await server.key("ann"), await server.key("bob")
            first, second = await server.connect(), await server.connect()
            assert (await first.ask("/v1/queue/stats", STATS, key=ann)).status == 200
            refused = await second.ask("/v1/queue/stats", STATS, key=ann)
            assert (refused.status, refused.code) == (429, "too_many_connections")
            assert (await second.ask("/v1/queue/stats", STATS, key=bob)).status == 200
            first.writer.close()
            await until(lambda: len(server.context.connections) == 1, "the first is gone")
            assert (await second.ask("/v1/queue/stats", STATS, key=ann)).status == 200

    run(main())
