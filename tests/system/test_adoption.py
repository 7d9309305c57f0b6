"""A folder store becomes a group of a running cluster, and every message, lease and journal entry with it."""

from __future__ import annotations

import json
from pathlib import Path

from fairlane.assembly import open_broker
from fairlane.client import Client
from fairlane.model.message import Receipt
from tests.kit.servers.nodes import Cluster
from tests.kit.servers.stores import PostgresServer
from tests.system.test_cli import fairlane

MESSAGES = 40


def test_a_folder_moves_to_postgresql_and_into_a_cluster(postgres: PostgresServer, tmp_path: Path) -> None:
    """From a folder to PostgreSQL, and from there into a running cluster; nothing is lost on the way."""
    folder, single = str(tmp_path / "folder"), f"{postgres.url}&namespace={tmp_path.name}.single"
    shared = f"{postgres.url}&namespace={tmp_path.name}.cluster"
    with open_broker(folder) as broker:
        broker.create_queue("orders", {"max_attempts": 1})
        broker.create_queue("mails")
        broker.set_config("weight:orders:acme", "3")
        left = {broker.enqueue("orders", b"payload %d" % number): number for number in range(MESSAGES)}
        for leased in broker.lease("orders", 10):
            broker.ack(leased)
            del left[leased.id]
        (dead,) = broker.lease("orders")
        broker.nack(dead, error="no such address")
        del left[dead.id]
        (held,) = broker.lease("orders", visibility_ms=3_600_000)
        events = broker.read_journal(count=1_000).events
    copied = json.loads(fairlane("-o", "json", "store", "copy", folder, single))
    assert copied["messages"] == len(left) + 1
    with Cluster.of(2, shared, tmp_path) as cluster:
        done = json.loads(fairlane("-o", "json", "store", "copy", "--cluster", single, shared))
        assert (done["group"], done["queues"]) == ("mails", ["mails", "orders"])
        with Client(cluster.addresses) as client:
            cluster.owner("orders")
            assert {id_: client.get("orders", id_).payload for id_ in left} == {
                id_: b"payload %d" % number for id_, number in left.items()
            }
            assert [letter.id for letter in client.peek("orders.dlq", 10)] == [dead.id]
            assert client.ack_many("orders", [Receipt(id=held.id, token=held.token)]) == [None]
            assert client.get_config("weight:orders:acme") == "3"
            found = client.read_journal(count=1_000, queue="orders").events
            assert found[: len(events)] == events
        again = fairlane("store", "copy", "--cluster", single, shared, code=1)
        assert again == ""
