"""TLS on every interface: clients with a valid, a wrong, an expired and no certificate."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeAlias

import grpc
import httpx
import pytest
from websockets.exceptions import WebSocketException

from fairlane.client import AsyncClient, Transport
from fairlane.client.transport.grpc import GrpcTransport
from fairlane.client.transport.http import HttpTransport
from fairlane.client.transport.websocket import WebSocketTransport
from fairlane.errors import Disconnected
from fairlane.wire.grpc import admin_pb2
from tests.kit.certificates import make_ca, make_certificate, openssl
from tests.kit.waiting import PATIENCE_S, wait_until

from .grpc_process import GrpcServer, serving
from .server_process import ROOT, HttpClient, ServerProcess, running

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
Door: TypeAlias = Callable[[GrpcServer, Path, str | None, str], int]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create all certificates."""
    folder = tmp_path_factory.mktemp("certificates")
    make_ca(folder, "ca")
    make_ca(folder, "stranger")
    make_certificate(folder, "server", ca="ca")
    make_certificate(folder, "good", ca="ca")
    make_certificate(folder, "expired", ca="ca", days=-1)
    make_certificate(folder, "wrong", ca="stranger")
    make_certificate(folder, "elsewhere", ca="ca", address="192.0.2.1")
    openssl(folder, "ec", "-in", "server.key", "-out", "locked.key", "-aes256", "-passout", "pass:secret")
    return folder


def tls_flags(folder: Path, name: str) -> tuple[str, ...]:
    """Return the flags of a server with a certificate."""
    return ("--tls-certificate", str(folder / f"{name}.pem"), "--tls-key", str(folder / f"{name}.key"))


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServer]:
    """Run a server with TLS that requires client certificates."""
    flags = (*tls_flags(folder, "server"), "--tls-client-ca", str(folder / "ca.pem"))
    with serving(tmp_path_factory.mktemp("data"), *flags) as process:
        yield process


def context(folder: Path, client: str | None, *, ca: str = "ca") -> ssl.SSLContext:
    """Return the TLS context of a client."""
    made = ssl.create_default_context(cafile=folder / f"{ca}.pem")
    if client is not None:
        made.load_cert_chain(folder / f"{client}.pem", folder / f"{client}.key")
    return made


def credentials(folder: Path, client: str | None, *, ca: str = "ca") -> grpc.ChannelCredentials:
    """Return the same for gRPC."""
    pair = [] if client is None else [(folder / f"{client}.{end}").read_bytes() for end in ("key", "pem")]
    return grpc.ssl_channel_credentials((folder / f"{ca}.pem").read_bytes(), *pair)


def over_http(server: GrpcServer, folder: Path, client: str | None, ca: str) -> int:
    """Return the number of queues over HTTP."""
    with server.http(verify=context(folder, client, ca=ca)) as http:
        return len(http.get("/queues").json()["queues"])


def over_stream(server: GrpcServer, folder: Path, client: str | None, ca: str) -> int:
    """Return the number of queues over the stream."""
    with server.stream(ssl=context(folder, client, ca=ca)) as stream:
        return len(stream.call("queues")["queues"])


def over_grpc(server: GrpcServer, folder: Path, client: str | None, ca: str) -> int:
    """Return the number of queues over gRPC."""
    with server.called(credentials(folder, client, ca=ca)) as (_, admins):
        return len(admins.ListQueues(admin_pb2.ListQueuesRequest(), timeout=PATIENCE_S).queues)


DOORS = (over_http, over_stream, over_grpc)
TURNED_AWAY = (httpx.TransportError, OSError, WebSocketException, grpc.RpcError)


@pytest.mark.parametrize("door", DOORS)
def test_a_client_with_a_valid_certificate_is_served(server: GrpcServer, folder: Path, door: Door) -> None:
    """Every interface uses TLS."""
    assert door(server, folder, "good", "ca") == 0


@pytest.mark.parametrize("client", ["expired", "wrong", None])
@pytest.mark.parametrize("door", DOORS)
def test_a_client_without_a_valid_certificate_is_rejected(
    server: GrpcServer, folder: Path, door: Door, client: str | None
) -> None:
    """A foreign, an expired and no certificate fail during the handshake, on every interface."""
    with pytest.raises(TURNED_AWAY):
        door(server, folder, client, "ca")


@pytest.mark.parametrize("door", DOORS)
def test_a_client_disconnects_from_an_untrusted_server(server: GrpcServer, folder: Path, door: Door) -> None:
    """A client that trusts another authority disconnects."""
    with pytest.raises(TURNED_AWAY):
        door(server, folder, "good", "stranger")


def test_the_client_uses_tls_on_every_transport(server: GrpcServer, folder: Path) -> None:
    """The client works over WebSocket, HTTP and gRPC with its certificate, and raises Disconnected without."""
    address, at = f"https://{server.address}", f"grpcs://{server.grpc_address}"

    def transports(client: str | None) -> list[Transport]:
        tls = context(folder, client)
        return [
            WebSocketTransport(address, tls=tls),
            HttpTransport(address, tls=tls),
            GrpcTransport(at, credentials=credentials(folder, client), timeout=PATIENCE_S),
        ]

    async def main() -> None:
        for transport in transports("good"):
            async with AsyncClient(transport) as client:
                assert await client.queues() == []
        for transport in transports(None):
            with pytest.raises(Disconnected):
                await transport.connect()
            await transport.close()

    asyncio.run(main())


@pytest.mark.parametrize("name", ["expired", "elsewhere"])
@pytest.mark.parametrize("door", DOORS)
def test_a_client_rejects_an_invalid_server_certificate(
    folder: Path, bad_servers: dict[str, GrpcServer], door: Door, name: str
) -> None:
    """A client rejects an expired certificate and one for another name, although it trusts the authority."""
    with pytest.raises(TURNED_AWAY):
        door(bad_servers[name], folder, None, "ca")


@pytest.fixture(scope="module")
def bad_servers(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, GrpcServer]]:
    """Run a server with an invalid certificate that requires none of clients."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(serving(tmp_path_factory.mktemp(name), *tls_flags(folder, name)))
            for name in ("expired", "elsewhere")
        }


def told(server: GrpcServer, folder: Path, *arguments: str, ca: str = "ca") -> subprocess.CompletedProcess[str]:
    """Return what a command says about a server."""
    place = ("--server", f"https://{server.address}", "--tls-ca", str(folder / f"{ca}.pem"))
    command = [sys.executable, "-m", "fairlane", *place, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize(
    ("name", "ca", "fault", "remedy"),
    [
        ("expired", "ca", "certificate has expired", "Renew the certificate"),
        ("elsewhere", "ca", "IP address mismatch", "an address that the certificate is for"),
        ("expired", "stranger", "unable to get local issuer certificate", "with --tls-ca"),
    ],
)
def test_the_command_line_says_what_is_wrong_with_a_certificate(
    folder: Path, bad_servers: dict[str, GrpcServer], name: str, ca: str, fault: str, remedy: str
) -> None:
    """Commands fail with a remedy that helps, and the doctor names the certificate as what is wrong."""
    refused = told(bad_servers[name], folder, "stats", ca=ca)
    assert refused.returncode == 3
    assert fault in refused.stderr
    assert remedy in refused.stderr.partition("remedy: ")[2]
    examined = told(bad_servers[name], folder, "doctor", "-o", "json", ca=ca)
    (finding,) = json.loads(examined.stdout)
    assert (examined.returncode, finding["check"], finding["state"]) == (1, "certificate", "wrong")
    assert fault in finding["found"]
    assert remedy in finding["found"]


def test_the_doctor_tells_how_long_a_certificate_is_valid(server: GrpcServer, folder: Path) -> None:
    """With a client certificate the doctor gets in; without one the command says which options bring it."""
    pair = ("--tls-cert", str(folder / "good.pem"), "--tls-key", str(folder / "good.key"))
    found = {
        each["check"]: each["state"] for each in json.loads(told(server, folder, *pair, "doctor", "-o", "json").stdout)
    }
    assert (found["server"], found["certificate"]) == ("ok", "warning")  # it is valid for two days
    refused = told(server, folder, "doctor")
    assert refused.returncode == 3
    assert "--tls-cert and --tls-key" in refused.stderr


def probed(server: GrpcServer, path: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Return what the health check of a container finds out about a server with these flags."""
    host, _, port = server.address.rpartition(":")
    pairs = zip(flags[::2], flags[1::2], strict=True)
    settings = {f"FAIRLANE_{flag[2:].replace('-', '_').upper()}": value for flag, value in pairs}
    environ = os.environ | {"FAIRLANE_HOST": host, "FAIRLANE_PORT": port, **settings}
    command = [sys.executable, "-m", "fairlane.probe", path]
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_the_health_check_of_a_container_works_with_client_certificates(server: GrpcServer, folder: Path) -> None:
    """The check presents the certificate of the server; it fails where that isn't trusted, or the path is unknown."""
    own = tls_flags(folder, "server")
    assert [probed(server, path, *own).returncode for path in ("/healthz", "/readyz")] == [0, 0]
    for faulty in (probed(server, "/nothing", *own), probed(server, "/healthz", *tls_flags(folder, "wrong"))):
        assert faulty.returncode == 1
        assert len(faulty.stderr.splitlines()) == 1


def test_without_a_client_ca_no_client_certificate_is_required(folder: Path, tmp_path: Path) -> None:
    """TLS alone requires no client certificates; clients without TLS get nothing on any interface."""
    with serving(tmp_path / "data", *tls_flags(folder, "server")) as server:
        assert [door(server, folder, None, "ca") for door in DOORS] == [0, 0, 0]
        with httpx.Client(base_url=f"http://{server.address}") as http, pytest.raises(httpx.TransportError):
            http.get("/healthz")
        with server.called() as (_, admins), pytest.raises(grpc.RpcError):
            admins.ListQueues(admin_pb2.ListQueuesRequest(), timeout=PATIENCE_S)
        assert over_http(server, folder, None, "ca") == 0


@pytest.mark.parametrize(
    ("certificate", "key", "ca", "word"),
    [
        ("server.pem", "good.key", "ca.pem", "tls_certificate"),
        ("server.key", "server.key", "ca.pem", "tls_certificate"),
        ("server.pem", "locked.key", "ca.pem", "tls_certificate"),
        ("server.pem", "server.key", "server.key", "tls_client_ca"),
    ],
)
def test_unusable_certificate_files_are_reported(
    folder: Path, tmp_path: Path, certificate: str, key: str, ca: str, word: str
) -> None:
    """With a foreign, missing or encrypted key, or no authorities, the server does not start and names the file."""
    paths = [str(folder / name) for name in (certificate, key, ca)]
    files = ("--tls-certificate", paths[0], "--tls-key", paths[1], "--tls-client-ca", paths[2])
    command = [sys.executable, "-m", "fairlane.server", "--port", "0", "--data", str(tmp_path / "data"), *files]
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False, input=""
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert word in result.stderr


@pytest.fixture(scope="module")
def hasty(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServer]:
    """Serve with little time for a handshake, which is still enough for a client on a busy machine."""
    flags = (*tls_flags(folder, "server"), "--handshake-timeout-ms", "1500")
    with serving(tmp_path_factory.mktemp("hasty") / "data", *flags) as server:
        yield server


def unfinished(http: HttpClient, server: GrpcServer) -> int:
    """Return how many connections the server has closed because of their handshake."""
    text = http.get(f"https://{server.address}/metrics").text
    found = re.search(r'^fairlane_connections_closed_total\{reason="handshake_timeout"\} (\d+)', text, re.MULTILINE)
    assert found is not None
    return int(found.group(1))


@pytest.mark.parametrize("is_grpc", [False, True], ids=["http", "grpc"])
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a hello"])
def test_an_unfinished_handshake_is_ended(hasty: GrpcServer, folder: Path, sent: bytes, *, is_grpc: bool) -> None:
    """A connection that does not finish its TLS handshake in time is closed, and a client is served afterwards."""
    host, _, port = (hasty.grpc_address if is_grpc else hasty.address).rpartition(":")
    with hasty.http(verify=context(folder, None)) as http:
        before = unfinished(http, hasty)
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as silent:
            silent.sendall(sent)
            while silent.recv(4096):  # an alert may come before the end
                pass
        assert over_http(hasty, folder, None, "ca") == 0
        assert unfinished(http, hasty) - before == (0 if is_grpc else 1)


def test_a_silent_grpc_connection_without_tls_is_closed(tmp_path: Path) -> None:
    """A connection that never begins HTTP/2 is closed when the time for the handshake is over."""
    with serving(tmp_path / "data", "--handshake-timeout-ms", "300") as server:
        host, _, port = server.grpc_address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as silent:
            while silent.recv(4096):  # the server's settings come first
                pass


@pytest.mark.parametrize("door", DOORS)
def test_a_hangup_renews_the_certificates(folder: Path, tmp_path: Path, door: Door) -> None:
    """After SIGHUP new connections get the new certificate; files that can't be used change nothing."""
    for name in ("ca", "stranger"):
        shutil.copy(folder / f"{name}.pem", tmp_path)

    def install(name: str) -> None:
        for end in ("pem", "key"):
            shutil.copy(folder / f"{name}.{end}", tmp_path / f"live.{end}")

    def is_served(ca: str) -> bool:
        try:
            return door(live, folder, None, ca) == 0
        except TURNED_AWAY:
            return False

    install("server")
    with serving(tmp_path / "data", *tls_flags(tmp_path, "live")) as live:
        assert is_served("ca")
        (tmp_path / "live.pem").write_text("broken")
        live.signal(signal.SIGHUP)
        assert is_served("ca")
        install("wrong")
        live.signal(signal.SIGHUP)
        wait_until(lambda: is_served("stranger"), what="The new certificate is used")
        assert not is_served("ca")


def test_a_hangup_never_ends_a_server(tmp_path: Path) -> None:
    """A server without TLS goes on when its terminal closes."""
    with serving(tmp_path / "data") as server:
        server.signal(signal.SIGHUP)
        with server.http() as http:
            assert http.get("/queues").status_code == 200
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_hangups_end_no_server_that_starts_or_shuts_down(tmp_path: Path) -> None:
    """A server whose terminal closes again and again, from its first steps to its last, ends with SIGTERM and 0."""
    server = HungUpServer(tmp_path / "data")
    with running(server):
        with server.http() as http:
            assert http.get("/queues").status_code == 200
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    server.terminal.join()
    assert server.hangups > 1


class HungUpServer(ServerProcess):
    """A server that gets SIGHUP all the time once it has set its umask, which is one of the first things it does."""

    hangups = 0

    def popen(self, environ: dict[str, str]) -> subprocess.Popen[str]:
        """Start the process with a umask of others, and a thread that plays the terminal."""
        process = subprocess.Popen(
            self._command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, umask=0
        )
        self.terminal = threading.Thread(target=self._hang_up, args=[process])
        self.terminal.start()
        return process

    def _hang_up(self, process: subprocess.Popen[str]) -> None:
        def ended() -> bool:
            with suppress(OSError):  # it has ended
                if "Umask:\t0077" in Path(f"/proc/{process.pid}/status").read_text():
                    process.send_signal(signal.SIGHUP)
                    self.hangups += 1
            return process.poll() is not None

        wait_until(ended, what="The server ends")
