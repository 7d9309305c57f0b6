"""An outbox whose application, relay and server are killed at random."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from fairlane.client import Client
from tests.kit.servers.stores import PostgresServer
from tests.kit.waiting import wait_until
from tests.unit.client.serving import ServerProcess
from tests.unit.outbox.databases import database

ROOT = Path(__file__).parents[2]
ORDERS_PER_LIFE = 1_000_000


class Shop:
    """The application and the relay, as processes."""

    def __init__(self, url: str, server: str) -> None:
        self.url = url
        self._relay = [sys.executable, "-m", "fairlane", "--server", server, "outbox", "relay", url]
        self._lives = 0
        self.application = self._start_application()
        self.relay = self._start(self._relay)

    def _start_application(self) -> subprocess.Popen[bytes]:
        self._lives += 1
        first = self._lives * ORDERS_PER_LIFE
        return self._start([sys.executable, "-m", "tests.system.outbox_application", self.url, str(first)])

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill_application(self) -> None:
        """Kill the application, and start it again."""
        _end(self.application)
        self.application = self._start_application()

    def kill_relay(self) -> None:
        """Kill the relay, and start it again."""
        _end(self.relay)
        self.relay = self._start(self._relay)

    def stop(self) -> None:
        """End both for good."""
        _end(self.application)
        _end(self.relay)

    def value(self, statement: str) -> int:
        """Return a number from the database."""
        with psycopg.connect(self.url) as connection:
            row = connection.execute(statement.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def orders(self) -> int:
        """Return how many orders are committed."""
        return self.value("SELECT count(*) FROM orders")

    def waiting(self) -> int:
        """Return how many messages are in the outbox."""
        return self.value("SELECT count(*) FROM fairlane_outbox.messages")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@contextmanager
def shop_of(url: str, server: str) -> Iterator[Shop]:
    """Run a shop, and end its processes."""
    shop = Shop(url, server)
    try:
        yield shop
    finally:
        shop.stop()


def kill_at_random(shop: Shop, server: ServerProcess, *, kills: int, seed: int) -> None:
    """Kill application and broker so many times in total, and the relay between that, in random order.

    Each kill comes after a random number of further orders.
    """
    dice = random.Random(seed)
    victims = [("application", "server")[number % 2] for number in range(kills)] + ["relay"] * (kills // 2)
    dice.shuffle(victims)
    for victim in victims:
        enough = shop.orders() + dice.randint(1, 200)
        wait_until(lambda enough=enough: shop.orders() >= enough, what="the application goes on")  # type: ignore[misc]
        if victim == "server":
            server.kill()
            server.start()
        elif victim == "relay":
            shop.kill_relay()
        else:
            shop.kill_application()


def enqueued(server: ServerProcess) -> Counter[int]:
    """Take everything out of the queue, and count the orders."""
    found: Counter[int] = Counter()
    with Client(server.url) as client:
        while messages := client.lease("orders", 1_000):
            found.update(int(message.payload) for message in messages)
            client.ack_many("orders", messages)
    return found


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.long)])
def test_committed_orders_are_enqueued_once_and_others_never(
    durable_postgres: PostgresServer, tmp_path: Path, kills: int
) -> None:
    """Whichever of application, relay and broker is killed, the queue has each committed order once, and no other."""
    with database(durable_postgres) as url, ServerProcess(tmp_path) as server:
        with Client(server.url) as client:
            client.create_queue("orders", {"waiting_max": 10_000_000})
        with shop_of(url, server.url) as shop:
            kill_at_random(shop, server, kills=kills, seed=kills)
            _end(shop.application)
            wait_until(lambda: shop.waiting() == 0, what="the outbox is empty")
            with psycopg.connect(url) as connection:
                committed = [order for (order,) in connection.execute("SELECT id FROM orders").fetchall()]
        assert len(committed) > kills
        assert enqueued(server) == Counter(committed)
