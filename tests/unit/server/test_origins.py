"""Requests of web pages while authentication is disabled: which hosts and origins are accepted."""

from __future__ import annotations

import pytest

from fairlane.errors import Forbidden, InvalidArgument
from fairlane.server.limits import CallLimits
from fairlane.server.origins import ANY_ADDRESS, check_host_once, check_origin
from fairlane.server.run import _hosts_of
from fairlane.server.settings import ServerSettings, check
from tests.kit.servers.listening import listening
from tests.unit.server.local_server import run

LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))
FEW_FAILURES = CallLimits(auth_failures_per_second=1)
"""Ten at once; then a machine would need 100 s for 110 requests so that none is over the limit."""


@pytest.mark.parametrize(
    ("host", "origin", "scheme"),
    [
        ("localhost:7420", None, "http"),
        ("LOCALHOST:7420", "http://localhost:7420", "http"),
        ("[::1]:7420", "http://[::1]:7420", "ws"),
        ("localhost", "http://localhost", "http"),
        ("localhost", "http://localhost:80", "http"),
        ("localhost:443", "https://localhost", "wss"),
    ],
)
def test_the_servers_own_pages_may_call(host: str, origin: str | None, scheme: str) -> None:
    """The origin is the scheme, host and port that the request was sent to; default ports may be left out."""
    headers = {b"host": host} | ({} if origin is None else {b"origin": origin})
    check_origin(headers, scheme, LOCAL)


@pytest.mark.parametrize(
    ("host", "origin", "scheme"),
    [
        ("evil.example:7420", None, "http"),
        ("localhost.evil.example", None, "http"),
        ("", None, "http"),
        ("192.168.0.7", None, "http"),
        ("localhost:7420", "x://localhost:7420", "http"),
        ("localhost:7420", "https://localhost:7420", "http"),
        ("localhost:7420", "http://localhost:7421", "http"),
        ("localhost:7420", "http://localhost", "http"),
        ("localhost:7420", "http://evil.example:7420", "ws"),
        ("localhost:7420", "null", "http"),
        ("localhost:7420", "http://localhost:99999999", "http"),
        ("localhost:7420", "http://[", "http"),
    ],
)
def test_pages_of_other_sites_may_not_call(host: str, origin: str | None, scheme: str) -> None:
    """Another scheme, host or port is another site, and so is a name that is not the server's."""
    headers = {b"host": host} | ({} if origin is None else {b"origin": origin})
    with pytest.raises(Forbidden):
        check_origin(headers, scheme, LOCAL)


@pytest.mark.parametrize(
    ("settings", "allowed", "refused"),
    [
        (ServerSettings(), ["localhost", "127.0.0.1"], ["evil.example", "10.0.0.7"]),
        (ServerSettings(allowed_hosts="Queue.example, q2"), ["queue.example", "q2"], ["evil.example"]),
        (ServerSettings(host="10.1.2.3", insecure=True), ["10.0.0.7", "[2001:db8::1]:7420"], ["evil.example"]),
        (ServerSettings(host="10.1.2.3", insecure=True, allowed_hosts="queue"), ["queue:7420"], ["evil.example"]),
        (ServerSettings(host="10.1.2.3", insecure=True, allowed_hosts="*"), ["evil.example"], []),
        (ServerSettings(host="queue.example", insecure=True), ["queue.example:7420"], ["evil.example"]),
    ],
)
def test_hosts_are_checked_wherever_authentication_is_disabled(
    settings: ServerSettings, allowed: list[str], refused: list[str]
) -> None:
    """Beyond loopback an address is accepted, since DNS rebinding needs a name, and names that the operator allows."""
    hosts = _hosts_of(settings)
    for host in allowed:
        check_origin({b"host": host, b"origin": f"http://{host}"}, "http", hosts)
    for host in refused:
        with pytest.raises(Forbidden, match="Add it to allowed_hosts"):
            check_origin({b"host": host, b"origin": f"http://{host}"}, "http", hosts)


def test_no_host_is_called_like_the_placeholder() -> None:
    """The name that stands for all addresses can't be sent as a host."""
    with pytest.raises(Forbidden):
        check_origin({b"host": ANY_ADDRESS.replace(" ", "")}, "http", frozenset((ANY_ADDRESS,)))


def test_two_hosts_are_refused() -> None:
    """A request with several Host headers is answered with 400; other headers may repeat."""
    check_host_once([(b"host", b"a"), (b"accept", b"b"), (b"accept", b"c")])
    with pytest.raises(InvalidArgument, match="2 Host headers"):
        check_host_once([(b"host", b"localhost"), (b"host", b"localhost")])

    async def main() -> None:
        async with listening() as server:
            wire = await server.connect()
            wire.send(b"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
            answer = await wire.answer()
            assert (answer.status, answer.code) == (400, "invalid_argument")

    run(main())


def test_forwarded_addresses_are_believed_from_trusted_proxies_only() -> None:
    """Without the setting X-Forwarded-For changes nothing; a wrong setting is rejected before the server starts."""

    async def calls(trusted: str | None) -> list[int]:
        settings = ServerSettings(trusted_proxies=trusted)
        async with listening(FEW_FAILURES, settings=settings, requires_auth=True) as server:
            wire = await server.connect()
            statuses = []
            for number in range(110):
                head = f"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 10.0.0.{number}\r\n\r\n"
                wire.send(head.encode())
                statuses.append((await wire.answer()).status)
            return statuses

    assert set(run(calls("127.0.0.1"))) == {401}
    assert run(calls(None))[-1] == 429
    with pytest.raises(InvalidArgument, match="trusted_proxies"):
        check(ServerSettings(trusted_proxies="proxy.example"))


def test_pages_run_only_their_own_scripts_and_are_not_framed() -> None:
    """The API documentation allows its script and style by their hashes; every answer forbids sniffing."""

    async def main() -> None:
        async with listening() as server:
            wire = await server.connect()
            for path in ("/docs", "/", "/v1/queues", "/healthz", "/v1/nowhere"):
                answer = await wire.ask(path)
                assert answer.headers["x-content-type-options"] == "nosniff"
                if path in ("/docs", "/"):
                    policy = answer.headers["content-security-policy"]
                    assert "unsafe" not in policy
                    assert "frame-ancestors 'none'" in policy

    run(main())
