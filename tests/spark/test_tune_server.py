"""Tuning over the network, on a real server: what is set, kept and rolled back there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from fairlane.client import Client
from fairlane.spark.tune.rounds import Round, TuneOptions
from fairlane.spark.tune.tuner import Tuner
from fairlane.spark.whatif.targets import target_of
from tests.spark.queues import address, until
from tests.spark.test_tune import planted
from tests.system.server_process import ServerProcess

QUEUE = "work"
ACME = f"weight:{QUEUE}:acme"
LONG_S = 3.0
"""How long a message waits that misses the target of two seconds."""
KEEP_MS = 600_000


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    """A client of a server whose tenants have waited too long."""
    with Client(address(server)) as client:
        client.create_queue(QUEUE)
        enqueue(client)
        begun_s = time.monotonic()
        until(lambda: time.monotonic() > begun_s + LONG_S)  # the server has a real clock
        work(client)
        yield client


def enqueue(client: Client) -> None:
    for tenant in ("acme", "noisy") * 10:
        client.enqueue(QUEUE, b"", fairness_key=tenant)


def work(client: Client) -> None:
    while leased := client.lease(QUEUE, 20):
        client.ack_many(QUEUE, leased)


def tuned(client: Client, meanwhile: Callable[[], None]) -> Round:
    """Return a round in which something happens while a change is watched."""
    watched = iter((lambda: None, meanwhile))  # the first wait is for a whole window before the change
    options = TuneOptions(queue=QUEUE, targets=(target_of("wait_p99:acme<=2s"),), window_ms=60_000, keep_ms=KEEP_MS)
    return Tuner(client, options, wait=lambda _ms: next(watched)(), propose=planted(acme="4")).round()


def changes(client: Client) -> list[tuple[str | None, str | None, str]]:
    """Return each change of the setting as the journal has it: value, owner, and the beginning of the reason."""
    found = [event for event in client.read_journal(0).events if event["kind"] == "config_set"]
    return [(event.get("value"), event.get("owner"), event["reason"].partition(":")[0]) for event in found]


def test_a_change_that_helps_is_kept_on_a_server(client: Client) -> None:
    """A change is tried, and once the target is met it is set again until the expiry that was asked for."""

    def meanwhile() -> None:
        assert client.list_config() == {ACME: "4"}
        enqueue(client)
        work(client)

    done = tuned(client, meanwhile)
    assert (done.outcome, done.is_met) == ("kept", True)
    assert client.list_config() == {ACME: "4"}
    (kept,) = client.list_temporary_config()
    assert (kept.key, kept.owner) == (ACME, "tune")
    assert changes(client) == [("4", "tune", "tried"), ("4", "tune", "kept")]


def test_a_change_that_proves_nothing_is_rolled_back_on_a_server(client: Client) -> None:
    """Without messages to judge by, the value before is restored."""
    done = tuned(client, lambda: None)
    assert (done.outcome, client.list_config(), client.list_temporary_config()) == ("rolled_back", {}, [])
    assert changes(client) == [("4", "tune", "tried"), (None, "tune", "rolled back")]
