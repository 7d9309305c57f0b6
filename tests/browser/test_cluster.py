"""The cluster page with two real nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.browser.viewer import Viewer, served
from tests.kit.servers.nodes import Cluster, Node
from tests.kit.servers.stores import PostgresServer
from tests.kit.waiting import PATIENCE_S

SPLIT = {"queue": "orders"}


def test_nodes_are_shown_and_queues_can_be_moved(postgres: PostgresServer, tmp_path: Path, viewer: Viewer) -> None:
    """The page shows nodes and owners; a queue moves, and a killed node is shown without heartbeat."""
    store = f"{postgres.url}&namespace={tmp_path.name}"
    with Cluster.of(2, store, tmp_path) as cluster:
        first, other = cluster.nodes
        httpx.post(f"{first.url}/v1/queues/create", json={"queue": "orders"}, timeout=PATIENCE_S).raise_for_status()
        viewer.page.goto(f"{first.url}/#/")
        viewer.page.get_by_role("link", name="Cluster").click()
        viewer.sees("2 of 2 nodes alive, as seen by node n1.")
        owner = cluster.owner("orders")
        row = viewer.page.locator("tbody tr", has_text="Move orders")
        row.locator("td", has_text=owner.name).wait_for()
        target = other if owner is first else first
        viewer.page.get_by_role("button", name="Move orders").click()
        viewer.page.get_by_role("combobox", name="Node").select_option(target.name)
        viewer.page.locator("#yes").click()
        row.locator("td", has_text=target.name).wait_for()
        other.kill()
        viewer.sees("1 of 2 nodes alive")
        viewer.sees("no heartbeat for")


def test_partitions_are_shown_and_can_be_moved(postgres: PostgresServer, tmp_path: Path, viewer: Viewer) -> None:
    """A split queue is shown with the node of each partition; the first moves without the others."""
    store = f"{postgres.url}&namespace={tmp_path.name}"
    with Cluster.of(2, store, tmp_path) as cluster:
        first, other = cluster.nodes
        for path, request in (("queues/create", {"queue": "orders"}), ("cluster/split", SPLIT | {"partitions": 3})):
            httpx.post(f"{first.url}/v1/{path}", json=request, timeout=PATIENCE_S).raise_for_status()
        _posted(first, "cluster/split", **SPLIT | {"partitions": 2})
        owners = [cluster.owner(name).name for name in ("orders", "orders~1")]
        _posted(first, "cluster/move", queue="orders~1", node=owners[1])  # its current node, which pins it there
        viewer.page.goto(f"{first.url}/#/cluster")
        viewer.sees("Split queues")
        assert viewer.cells("orders~0")[1:] == ["orders~0", owners[0], "accepted"]
        shown = viewer.page.locator("#splits tbody tr").all_inner_texts()
        assert [row.split("\t")[1:3] for row in shown[:2]] == [["orders~0", owners[0]], ["orders~1", owners[1]]]
        target = other.name if owners[0] == first.name else first.name
        viewer.page.get_by_role("button", name="Move orders", exact=True).click()
        viewer.page.get_by_role("combobox", name="Node").select_option(target)
        viewer.page.locator("#yes").click()
        viewer.page.locator("#splits tr", has_text="orders~0").locator("td", has_text=target).wait_for()
        assert cluster.owner("orders~1").name == owners[1]
        viewer.page.get_by_role("link", name="Queues").click()
        viewer.page.get_by_role("link", name="orders~0", exact=True).first.click()
        viewer.sees("Queue orders~0")
        viewer.page.get_by_role("link", name="Hooks").click()
        viewer.sees("orders has no on_enqueue hook.")
        viewer.page.goto(f"{first.url}/#/queue/orders")
        viewer.sees("Split into partitions")


def test_a_single_server_has_no_cluster_page(tmp_path: Path, viewer: Viewer) -> None:
    """Without a cluster there is no link to it."""
    with served(tmp_path) as server:
        page = viewer.open(server)
        viewer.sees("live")
        assert page.get_by_role("link", name="Cluster").count() == 0


def test_every_node_shows_all_queues(postgres: PostgresServer, tmp_path: Path, viewer: Viewer) -> None:
    """Every node lists and watches queues of other nodes and shows the history of their messages."""
    store = f"{postgres.url}&namespace={tmp_path.name}"
    with Cluster.of(2, store, tmp_path) as cluster:
        first, other = cluster.nodes
        for queue, node in (("orders", first), ("mails", other)):
            _posted(first, "queues/create", queue=queue)
            _posted(first, "cluster/move", queue=queue, node=node.name)
            cluster.wait_for(queue, node)
        messages = [{"payload": "aGk=", "fairness_key": "acme", "correlation_id": "trip-7"}] * 3
        ids = [each["id"] for each in _posted(other, "queue/enqueue", queue="mails", messages=messages)["results"]]
        page = viewer.page
        page.goto(f"{first.url}/#/")
        assert viewer.cells("mails")[2] == "3"
        assert viewer.cells("orders")[2] == "0"
        page.get_by_role("link", name="mails").first.click()
        viewer.sees("acme")
        page.goto(f"{first.url}/#/message/mails/{ids[0]}")
        page.locator("#history li", has_text="enqueued").wait_for()
        page.goto(f"{first.url}/#/message/-/trip-7")
        viewer.sees("3 messages have this correlation id")
        _posted(other, "config/set", values={"throttle:api:rate": "5"})
        page.goto(f"{first.url}/#/controls")
        viewer.sees("throttle:api:rate")


def _posted(at: Node, path: str, **request: Any) -> Any:
    answer = httpx.post(f"{at.url}/v1/{path}", json=request, timeout=PATIENCE_S)
    answer.raise_for_status()
    return answer.json()
