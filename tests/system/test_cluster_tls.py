"""Nodes of a cluster that ask each other over TLS, with certificates of an authority that no system knows."""

from __future__ import annotations

import shutil
import signal
import ssl
from pathlib import Path

import httpx
import pytest

from tests.kit.certificates import make_ca, make_certificate
from tests.kit.servers.nodes import Cluster, Node
from tests.kit.servers.stores import PostgresServer
from tests.kit.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create two authorities, and a certificate of each for this machine."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("old", "new"):
        make_ca(folder, f"{name}-ca")
        make_certificate(folder, name, ca=f"{name}-ca")
    return folder


def install(made: Path, name: str, folder: Path) -> None:
    """Put a certificate, its key and its authority where the nodes read them."""
    for end in ("pem", "key"):
        shutil.copy(made / f"{name}.{end}", folder / f"live.{end}")
    shutil.copy(made / f"{name}-ca.pem", folder / "ca.pem")


def context(made: Path, *names: str, certificate: str | None = None) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts authorities, and may have a certificate."""
    tls = ssl.create_default_context()
    for name in names:
        tls.load_verify_locations(made / f"{name}-ca.pem")
    if certificate is not None:
        tls.load_cert_chain(made / f"{certificate}.pem", made / f"{certificate}.key")
    return tls


def cluster_of(postgres: PostgresServer, folder: Path, tls: ssl.SSLContext, authority: str) -> Cluster:
    """Return two nodes that use the installed files, the authority for one setting."""
    files = (
        ("tls-certificate", "live.pem"),
        ("tls-key", "live.key"),
        (authority, "ca.pem"),
    )
    flags = [text for name, file in files for text in (f"--{name}", str(folder / file))]
    return Cluster.of(2, f"{postgres.url}&namespace={folder.name}", folder, flags=flags, tls=tls)


def asked(node: Node, path: str, *, post: object = None, tls: ssl.SSLContext | None = None) -> httpx.Response:
    """Return what a node answers, over a new connection."""
    with httpx.Client(base_url=node.url, verify=tls or node.tls or False, timeout=PATIENCE_S) as http:
        return http.get(path) if post is None else http.post(path, json=post)


def place_queues(cluster: Cluster) -> None:
    """Create a queue for each node, with the name of the node."""
    for node in cluster.nodes:
        asked(node, "/v1/queues/ensure", post={"queue": node.name}).raise_for_status()
        asked(node, "/v1/cluster/move", post={"queue": node.name, "node": node.name}).raise_for_status()
        cluster.wait_for(node.name, node)


def is_forwarded(asking: Node, owning: Node) -> bool:
    """Return whether a node answers for the queue of another."""
    return asked(asking, "/v1/queue/stats", post={"queue": owning.name}).status_code == 200


def test_nodes_trust_each_other_with_an_authority_of_their_own(
    postgres: PostgresServer, made: Path, tmp_path: Path
) -> None:
    """With ``tls_ca`` each node answers for the other's queue over TLS, and health checks need no certificate."""
    install(made, "old", tmp_path)
    with cluster_of(postgres, tmp_path, context(made, "old"), "tls-ca") as cluster:
        place_queues(cluster)
        one, other = cluster.nodes
        assert is_forwarded(one, other)
        assert is_forwarded(other, one)
        assert [asked(node, path).status_code for node in cluster.nodes for path in ("/healthz", "/readyz")] == [
            200
        ] * 4


def test_nodes_renew_what_they_present_to_each_other(postgres: PostgresServer, made: Path, tmp_path: Path) -> None:
    """Nodes that require certificates ask each other with new ones, of a new authority, after SIGHUP."""
    install(made, "old", tmp_path)
    with cluster_of(postgres, tmp_path, context(made, "old", "new", certificate="old"), "tls-client-ca") as cluster:
        place_queues(cluster)
        one, other = cluster.nodes
        assert is_forwarded(one, other)
        install(made, "new", tmp_path)
        renewed = context(made, "new", certificate="new")
        for node in cluster.nodes:
            node.tls = renewed
            node.signal(signal.SIGHUP)
        wait_until(lambda: all(node.view() for node in cluster.nodes), what="The nodes use the new files")
        other.kill()
        cluster.start([other])
        place_queues(cluster)
        assert is_forwarded(one, other)
        assert is_forwarded(other, one)
