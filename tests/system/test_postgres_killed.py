from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.kit.servers.stores import PostgresServer, ServerMissing
from tests.kit.waiting import wait_until

from .broker_lives import Lives, LoadedBroker, audit_what_is_left

KILLS = 4
EVENTS = 300


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    try:
        server = PostgresServer(fsync=True)
    except ServerMissing as error:
        pytest.skip(str(error))
    with server:
        yield server


def span_of_log(server: PostgresServer) -> tuple[int, int]:
    """Return the first sequence that the log has, and the one after its last."""
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT first_sequence, next_sequence FROM fairlane_logs").fetchone()
    return (1, 0) if row is None else (int(row[0]), int(row[1]))


def drain(broker: LoadedBroker) -> None:
    """Read and forget what a process reports until it ends, so that it never waits for its reader."""
    threading.Thread(target=_read_all, args=(os.dup(broker.progress.fileno()),), daemon=True).start()


def _read_all(descriptor: int) -> None:
    with open(descriptor, "rb") as pipe:
        while pipe.read(65_536):
            pass


def test_a_postgres_killed_under_load_loses_nothing_that_was_answered(server: PostgresServer, tmp_path: Path) -> None:
    """While the server dies and comes back, brokers refuse, recover by themselves and go on, and nothing is lost."""
    lives = Lives(tmp_path, seed=5, store=f"{server.url}&owner=load", may_fail=True)

    def kill_again_and_again(broker: LoadedBroker) -> None:
        drain(broker)
        for _ in range(KILLS):
            server.kill()
            server.start()
            end = span_of_log(server)[1] + EVENTS
            wait_until(lambda end=end: span_of_log(server)[1] > end, what="The broker goes on")  # type: ignore[misc] # bound early

    def wait_for_a_trim(broker: LoadedBroker) -> None:
        drain(broker)
        wait_until(lambda: span_of_log(server)[0] > 1, what="The journal is trimmed")

    lives.live(meanwhile=kill_again_and_again)
    lives.live(meanwhile=wait_for_a_trim)
    remains = audit_what_is_left(lives)
    counts = lives.auditor.counts
    print(f"\n{KILLS} kills of PostgreSQL under load")
    print("\n".join(f"{count:6} {what}" for what, count in counts.most_common()))
    print(f"{remains:6} drained at the end")
    assert counts["calls refused with store_failed"] >= KILLS
    assert counts["acked"] > 300
