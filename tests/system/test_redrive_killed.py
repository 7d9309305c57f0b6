"""A redrive whose server is killed again and again, while what it has moved dies once more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from fairlane.client import Client, NewMessage
from tests.kit.waiting import wait_until
from tests.unit.client.serving import ServerProcess

KILLS = 4
QUEUES = ("orders", "mails")
EACH = 150
TOTAL = len(QUEUES) * EACH
RATE = 100.0
PATIENCE_MS = 60_000


def bury_all(client: Client) -> None:
    """Create queues that share a dead-letter queue, and let all their messages die."""
    client.create_queue("failures")
    for queue in QUEUES:
        client.create_queue(queue, {"dead_letter_queue": "failures"})
        client.enqueue_many(queue, [NewMessage(payload=b"%d" % at) for at in range(EACH)])
        fail(client, queue, EACH)


def fail(client: Client, queue: str, count: int) -> list[str]:
    """Let some messages of a queue become dead letters, and return their ids."""
    failed: list[str] = []
    while len(failed) < count:
        for message in client.lease(queue, count - len(failed), wait_ms=PATIENCE_MS):
            message.dead_letter("broken")
            failed.append(message.id)
    return failed


def wait_until_moved(client: Client, redrive_id: str, count: int) -> None:
    """Wait until a redrive has moved some dead letters."""
    wait_until(lambda: client.redrive_view(redrive_id).moved >= count, what="dead letters move")


def journal(client: Client) -> list[dict[str, Any]]:
    """Return all events of the journal."""
    events: list[dict[str, Any]] = []
    position = 0
    while (page := client.read_journal(position)).position > position:
        events += page.events
        position = page.position
    return events


def test_a_redrive_moves_each_dead_letter_once_though_the_server_is_killed(tmp_path: Path) -> None:
    """Over kills of the server in the middle of a redrive, every dead letter moves to its own queue once, and those
    that die again stay dead."""
    with ServerProcess(tmp_path / "data") as server, Client(server.url) as client:
        bury_all(client)
        redrive = client.redrive("failures", rate=RATE)
        died_again: set[str] = set()
        for kill in range(1, KILLS + 1):
            wait_until_moved(client, redrive.id, kill * TOTAL // (KILLS + 2))
            died_again.update(fail(client, "orders", 5))
            assert client.redrive_view(redrive.id).status == "running"
            server.kill()
            server.start()
        wait_until(lambda: client.redrive_view(redrive.id).status == "done", what="the redrive ends")
        view = client.redrive_view(redrive.id)
        left = {queue: client.queue(queue).waiting for queue in ("failures", *QUEUES)}
        events = journal(client)
    assert (view.moved, view.total) == (TOTAL, TOTAL)
    assert left == {"failures": len(died_again), "orders": EACH - len(died_again), "mails": EACH}
    enqueued = {event["message_id"]: 1 for event in events if event["kind"] == "enqueued"}
    moved = Counter(event["message_id"] for event in events if event["kind"] == "redriven")
    assert len(enqueued) == TOTAL
    assert moved == enqueued
    assert [event["kind"] for event in events].count("opened") == KILLS + 1
