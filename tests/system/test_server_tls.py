"""TLS: a server with a certificate, and clients with a good one, a wrong one, an expired one and none."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from .server_process import ServerProcess, serving

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(folder: Path, *arguments: str) -> None:
    """Run openssl in a folder."""
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_ca(folder: Path, name: str) -> None:
    """Make somebody who vouches for others."""
    files = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
    usage = ("-addext", "keyUsage=critical,keyCertSign")
    openssl(folder, "req", "-x509", *CURVE, *files, "-subj", f"/CN={name}", "-days", "2", *usage)


def make_certificate(folder: Path, name: str, *, ca: str, days: int = 2) -> None:
    """Make a certificate for this machine."""
    openssl(folder, "req", *CURVE, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    extensions = folder / "extensions"
    extensions.write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    signing = ("-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-extfile", str(extensions))
    files = ("-in", f"{name}.csr", "-out", f"{name}.pem")
    openssl(folder, "x509", "-req", *files, *signing, "-days", str(days))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make all certificates."""
    folder = tmp_path_factory.mktemp("certificates")
    make_ca(folder, "ca")
    make_ca(folder, "stranger")
    make_certificate(folder, "server", ca="ca")
    make_certificate(folder, "good", ca="ca")
    make_certificate(folder, "expired", ca="ca", days=-1)
    make_certificate(folder, "wrong", ca="stranger")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Serve with TLS, and ask clients for certificates."""
    files = ("--tls-certificate", str(folder / "server.pem"), "--tls-key", str(folder / "server.key"))
    with serving(tmp_path_factory.mktemp("data"), *files, "--tls-client-ca", str(folder / "ca.pem")) as process:
        yield process


def context(folder: Path, client: str | None, *, ca: str = "ca") -> ssl.SSLContext:
    """Return what a client trusts and shows."""
    made = ssl.create_default_context(cafile=folder / f"{ca}.pem")
    if client is not None:
        made.load_cert_chain(folder / f"{client}.pem", folder / f"{client}.key")
    return made


def test_a_client_with_a_good_certificate_is_served(server: ServerProcess, folder: Path) -> None:
    """Both doors speak TLS."""
    good = context(folder, "good")
    with server.http(verify=good) as http:
        assert http.get("/queues").json() == {"queues": []}
    with server.stream(ssl=good) as stream:
        assert stream.call("queues") == {"queues": []}


@pytest.mark.parametrize("client", ["expired", "wrong", None])
def test_a_client_without_a_good_certificate_is_turned_away(
    server: ServerProcess, folder: Path, client: str | None
) -> None:
    """A certificate of a stranger, one that is over, and none at all end before anything is asked."""
    with server.http(verify=context(folder, client)) as http, pytest.raises(httpx.TransportError):
        http.get("/queues")


def test_a_server_that_is_not_trusted_is_not_spoken_to(server: ServerProcess, folder: Path) -> None:
    """A client that trusts somebody else hangs up."""
    untrusting = context(folder, "good", ca="stranger")
    with server.http(verify=untrusting) as http, pytest.raises(httpx.ConnectError):
        http.get("/queues")
