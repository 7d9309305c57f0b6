"""Backups of a server under full load: what was acknowledged before the mark is in the restored store."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fairlane.assembly import open_broker
from fairlane.client import Client, NewMessage
from fairlane.errors import MessageNotFound
from tests.kit.ids import numbered
from tests.kit.waiting import wait_until
from tests.system.server_process import serving
from tests.system.test_cli import fairlane

BATCH, BACKLOG = 20, 2_000
CLOCKS_MS = 1_000
"""How far the time of a server may be behind the wall clock, at most."""
PRODUCERS = CONSUMERS = 2


@dataclass(slots=True)
class Log:
    """What the clients know: which enqueues were answered, when acks were sent, and which of those were answered.

    Nobody consumes the messages that are ``kept``.
    """

    enqueued: dict[str, bytes] = field(default_factory=dict)
    kept: dict[str, bytes] = field(default_factory=dict)
    sent_ms: dict[str, int] = field(default_factory=dict)
    acked: set[str] = field(default_factory=set)


def now_ms() -> int:
    """Return the time of the wall clock, which the server reads too."""
    return int(datetime.now(UTC).timestamp() * 1000)


@contextmanager
def load(url: str) -> Iterator[Log]:
    """Enqueue and acknowledge as fast as the server allows while the context lasts, with a backlog that stays."""
    log, stopping, numbers = Log(), threading.Event(), count()

    def produce() -> None:
        with Client(url) as client:
            while not stopping.is_set():
                if len(log.enqueued) - len(log.acked) > BACKLOG:
                    stopping.wait(0.005)
                    continue
                batch = [NewMessage(payload=b"payload %d" % next(numbers)) for _ in range(BATCH)]
                for id_, message in zip(client.enqueue_many("orders", batch), batch, strict=True):
                    assert isinstance(id_, str)
                    log.enqueued[id_] = message.payload
                log.kept[client.enqueue("kept", batch[0].payload)] = batch[0].payload

    def consume() -> None:
        with Client(url) as client:
            while not stopping.is_set():
                leased = client.lease("orders", BATCH // 2, wait_ms=100)
                log.sent_ms.update((message.id, now_ms()) for message in leased)
                assert client.ack_many("orders", leased) == [None] * len(leased)
                log.acked.update(message.id for message in leased)

    threads = [threading.Thread(target=act) for act in (produce,) * PRODUCERS + (consume,) * CONSUMERS]
    for thread in threads:
        thread.start()
    try:
        yield log
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.long)])
def test_backups_under_full_load_have_everything_before_their_mark(rounds: int, tmp_path: Path) -> None:
    """Each backup is taken while four clients work, and restored to another folder, where nothing is missing."""
    with serving(tmp_path / "data") as server:
        url = f"http://{server.address}"
        with Client(url) as client:
            client.create_queue("orders")
            client.create_queue("kept")
        for number in range(rounds):
            with load(url) as log:
                wait_until(partial(_has_load, log), what="there is load")
                enqueued, acked = {**log.enqueued, **log.kept}, set(log.acked)
                folder = tmp_path / f"backup-{number}"
                mark = json.loads(fairlane("--server", url, "-o", "json", "backup", str(folder)))
            place = tmp_path / f"restored-{number}"
            fairlane("store", "check", str(folder))
            restored = json.loads(fairlane("-o", "json", "restore", str(folder), str(place)))
            assert restored["messages"] == mark["messages"]
            assert all(numbered(id_) <= mark["position"] for id_ in enqueued)
            check(place / "store", log, acked, mark)
            fairlane("store", "check", str(place))


def _has_load(log: Log) -> bool:
    return len(log.acked) > 500


def check(place: Path, log: Log, acked: set[str], mark: dict[str, Any]) -> None:
    """Check that all messages before the mark are there whose ack was not sent by then, and none that was acked."""
    before = {id_ for id_ in (*log.enqueued, *log.kept) if numbered(id_) <= mark["position"]}
    expected = {id_ for id_ in before if log.sent_ms.get(id_, now_ms()) > mark["at_ms"] + CLOCKS_MS}
    assert expected & log.kept.keys()
    with open_broker(place) as restored:
        for id_ in expected:
            queue, known = ("kept", log.kept) if id_ in log.kept else ("orders", log.enqueued)
            assert restored.get(queue, id_).payload == known[id_]
        for id_ in acked:
            with pytest.raises(MessageNotFound):
                restored.get("orders", id_)
