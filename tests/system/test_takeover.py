"""Nodes that are killed are taken over as soon as their session at PostgreSQL has ended, not by a timeout."""

from __future__ import annotations

import json
import statistics
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kit.servers.nodes import Cluster, Node
from tests.kit.servers.stores import PostgresServer
from tests.kit.waiting import PATIENCE_S, wait_until

KILLS = 10
NEVER = ("--heartbeat-timeout-ms", "60000")


def ask(node: Node, path: str, request: dict[str, Any]) -> bool:
    """Return whether a node carries out a request."""
    body = json.dumps(request).encode()
    call = urllib.request.Request(f"{node.url}/v1/{path}", body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(call, timeout=PATIENCE_S):
            return True
    except (OSError, urllib.error.URLError):
        return False


def enqueues(node: Node) -> bool:
    """Return whether a message can be enqueued through a node."""
    return ask(node, "queue/enqueue", {"queue": "orders", "messages": [{"payload": "aGVsbG8="}]})


def kill_owner(cluster: Cluster) -> tuple[Node, Node, float]:
    """Kill the owner of a queue, and return it, another node, and after how long that one answered an enqueue."""
    victim = cluster.owner("orders")
    other = next(node for node in cluster.nodes if node is not victim)
    begun_s = time.monotonic()
    victim.kill()
    wait_until(lambda: enqueues(other), what="An enqueue is answered")
    return victim, other, time.monotonic() - begun_s


def started(server: PostgresServer, folder: Path, *, count: int, flags: Sequence[str] = ()) -> Cluster:
    """Return a cluster in a namespace of its own."""
    return Cluster.of(count, f"{server.url}&namespace={folder.name}", folder, flags=flags)


def test_a_killed_node_is_taken_over_long_before_its_heartbeat_timeout(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """With a timeout of a minute, the queue of a killed node goes on because its session has ended."""
    with started(postgres, tmp_path, count=2, flags=NEVER) as cluster:
        assert ask(cluster.nodes[0], "queues/create", {"queue": "orders"})
        _, other, _ = kill_owner(cluster)
        assert "taken over from dead node" in other.log


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ten_killed_owners_with_default_settings(durable_postgres: PostgresServer, tmp_path: Path) -> None:
    """An enqueue through another node is answered within a second in the median, and within two at most."""
    took_s = []
    with started(durable_postgres, tmp_path, count=3) as cluster:
        assert ask(cluster.nodes[0], "queues/create", {"queue": "orders"})
        for _ in range(KILLS):
            victim, _, answered_s = kill_owner(cluster)
            took_s.append(answered_s)
            cluster.start([victim])
    median_s, longest_s = statistics.median(took_s), max(took_s)
    print(f"\ntakeover of {KILLS} killed owners: median {median_s:.2f} s, longest {longest_s:.2f} s")
    print("  " + " ".join(f"{each_s:.2f}" for each_s in took_s))
    assert median_s <= 1.0
    assert longest_s <= 2.0
