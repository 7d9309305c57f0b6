"""Uploads in a cluster whose nodes are killed: they go on at the next owner, or leave nothing."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.client import Client
from tests.kit.servers.nodes import Cluster, Node
from tests.kit.servers.stores import PostgresServer
from tests.kit.waiting import wait_until

from .cluster_chaos import LEASE
from .store_space import bytes_in_postgres
from .test_killed_uploads import SILENCE, UPLOADER

MIB = 1024 * 1024
PARTS, KILLS = 60, (15, 40)


@pytest.fixture
def cluster(durable_postgres: PostgresServer, tmp_path: Path) -> Cluster:
    """Three nodes over PostgreSQL, not started."""
    return Cluster.of(3, f"{durable_postgres.url}&namespace={tmp_path.name}", tmp_path, flags=LEASE)


@pytest.fixture
def impatient(durable_postgres: PostgresServer, tmp_path: Path) -> Cluster:
    """Three nodes that drop an upload a second after its last piece."""
    return Cluster.of(3, f"{durable_postgres.url}&namespace={tmp_path.name}", tmp_path, flags=LEASE + SILENCE)


def part(index: int) -> bytes:
    """Return a part of a payload, a different one for each index."""
    return index.to_bytes(4, "big") * (MIB // 4)


def test_an_upload_goes_on_when_its_owner_is_killed(
    durable_postgres: PostgresServer, cluster: Cluster, tmp_path: Path
) -> None:
    """Twice the owner of the queue dies midway; the payload is complete, there once, and leaves nothing when acked."""
    killed: list[Node] = []

    def parts() -> Iterator[bytes]:
        for index in range(PARTS):
            if index in KILLS:
                cluster.start(killed[-1:])
                killed.append(cluster.owner("films"))
                killed[-1].kill()
            yield part(index)

    with cluster, Client(cluster.addresses) as client:
        client.create_queue("films")
        empty = bytes_in_postgres(durable_postgres, tmp_path.name)
        client.enqueue_stream("films", parts())
        assert len(killed) == len(KILLS)
        (message,) = client.lease("films", 10)
        message.write_to(tmp_path / "copy")
        expected = hashlib.sha256(b"".join(map(part, range(PARTS)))).digest()
        assert hashlib.sha256((tmp_path / "copy").read_bytes()).digest() == expected
        message.ack()
        wait_until(
            lambda: bytes_in_postgres(durable_postgres, tmp_path.name) < empty + MIB, what="its space is returned"
        )
        assert client.uploads("films") == []


def test_an_upload_whose_client_and_owner_are_killed_leaves_nothing(
    durable_postgres: PostgresServer, impatient: Cluster, tmp_path: Path
) -> None:
    """The next owner finds it in the journal, drops it after a silence, and frees its space."""
    with impatient, Client(impatient.addresses) as client:
        client.create_queue("films")
        empty = bytes_in_postgres(durable_postgres, tmp_path.name)
        uploader = subprocess.Popen([sys.executable, "-c", UPLOADER, impatient.addresses], stderr=subprocess.DEVNULL)
        wait_until(lambda: any(each.size > 16 * MIB for each in client.uploads("films")), what="pieces arrive")
        impatient.owner("films").kill()
        uploader.kill()
        uploader.wait()
        assert bytes_in_postgres(durable_postgres, tmp_path.name) > empty + 16 * MIB
        wait_until(lambda: client.uploads("films") == [], what="the upload is dropped")
        wait_until(
            lambda: bytes_in_postgres(durable_postgres, tmp_path.name) < empty + MIB, what="its space is returned"
        )
        assert client.queue("films").waiting == 0
