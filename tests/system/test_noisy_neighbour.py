"""A noisy neighbour at a real server: the wait of a quiet tenant, counted in messages of others.

``benchmarks.neighbours`` measures the same in time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from .server_process import ServerProcess, Stream, serving

FLOOD = 20_000
BATCH = 5_000
QUIET = 100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Run a server."""
    data: Path = tmp_path_factory.mktemp("data")
    with serving(data, "--durability", "os") as process:
        yield process


@pytest.fixture
def stream(server: ServerProcess) -> Iterator[Stream]:
    """Open a connection."""
    with server.stream() as stream:
        yield stream


def flood(stream: Stream, queue: str) -> None:
    """Create a queue full of a noisy tenant's messages."""
    stream.call("create_queue", queue=queue)
    for _ in range(FLOOD // BATCH):
        stream.call("enqueue", queue=queue, messages=[{"fairness_key": "noisy"}] * BATCH)


def tenants(stream: Stream, queue: str, deliveries: list[dict[str, Any]]) -> list[str]:
    """Acknowledge deliveries and return their keys."""
    receipts = [{"id": delivery["id"], "token": delivery["token"]} for delivery in deliveries]
    assert stream.call("ack", queue=queue, receipts=receipts) == {"results": [{}] * len(receipts)}
    return [delivery["fairness_key"] for delivery in deliveries]


@pytest.mark.parametrize("count", [1, 10])
def test_a_quiet_tenant_gets_every_other_turn(stream: Stream, count: int) -> None:
    """With 20,000 messages ahead of its hundred, it waits for one before each, whatever the batch size."""
    queue = f"leased-{count}"
    flood(stream, queue)
    assert tenants(stream, queue, stream.call("lease", queue=queue, count=3)["deliveries"]) == ["noisy"] * 3
    stream.call("enqueue", queue=queue, messages=[{"fairness_key": "quiet"}] * QUIET)
    served: list[str] = []
    while len(served) < 2 * QUIET + 2:
        served += tenants(stream, queue, stream.call("lease", queue=queue, count=count)["deliveries"])
    places = [place for place, tenant in enumerate(served) if tenant == "quiet"]
    assert len(places) == QUIET
    assert all(later - earlier == 2 for earlier, later in pairwise(places))
    assert places[0] <= 1


def test_a_single_message_is_among_the_next_two(stream: Stream) -> None:
    """A streaming consumer gets it within two deliveries, apart from messages already in flight."""
    flood(stream, "stream")
    stream.send("consume", queue="stream", credit=1)
    for _ in range(20):
        tenants(stream, "stream", stream.deliveries(1))
    for at in range(50):
        stream.call("enqueue", queue="stream", messages=[{"fairness_key": f"tenant-{at}"}])
        served = [tenants(stream, "stream", stream.deliveries(1))[0] for _ in range(3)]
        assert served.count(f"tenant-{at}") == 1


def test_with_one_key_for_all_a_quiet_tenant_waits_for_the_flood(stream: Stream) -> None:
    """Without fairness keys the queue is first in, first out: none of its messages arrives in as many turns."""
    stream.call("create_queue", queue="fifo")
    for _ in range(FLOOD // BATCH):
        stream.call("enqueue", queue="fifo", messages=[{"fairness_key": "all"}] * BATCH)
    (result,) = stream.call("enqueue", queue="fifo", messages=[{"fairness_key": "all"}])["results"]
    ids: list[str] = []
    while len(ids) < FLOOD:
        ids += [delivery["id"] for delivery in stream.call("lease", queue="fifo", count=BATCH)["deliveries"]]
    assert result["id"] not in ids
    assert [delivery["id"] for delivery in stream.call("lease", queue="fifo")["deliveries"]] == [result["id"]]
