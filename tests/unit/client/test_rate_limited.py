"""A client that asks too often comes back by itself, when the server says so."""

from __future__ import annotations

import pytest

from fairlane.client import Client
from fairlane.client.retries import Retries, is_repeatable, pause_s
from fairlane.errors import Disconnected, RateLimited
from fairlane.model.message import NewMessage
from fairlane.verbs.messages import Enqueue
from tests.unit.client.serving import ServerProcess


def test_a_client_comes_back_until_it_is_served() -> None:
    """With one request in 20 ms, calls that follow each other at once are all done in the end, each once."""
    with (
        ServerProcess(":memory:", "--requests-per-second", "50", "--requests-burst", "1") as server,
        Client(server.url) as client,
    ):
        client.create_queue("orders")
        for _ in range(4):
            client.enqueue("orders", b"x")
        assert client.queue("orders").waiting == 4


def test_a_client_without_patience_says_so() -> None:
    """Without patience the error is raised, with the time to wait."""
    with (
        ServerProcess(":memory:", "--requests-per-second", "1", "--requests-burst", "1") as server,
        Client(server.url, retries=Retries(patience_s=0)) as client,
    ):
        client.create_queue("orders")
        with pytest.raises(RateLimited) as caught:
            client.create_queue("others")
        assert caught.value.retry_after_ms is not None
        assert 0 < caught.value.retry_after_ms <= 1_000


def test_a_refusal_by_rate_may_always_be_repeated() -> None:
    """Nothing was done, so that even an enqueue without a dedup id may; after a lost answer it may not."""
    request = Enqueue(queue="orders", messages=[NewMessage()])
    assert is_repeatable("enqueue", request, RateLimited("Too often."))
    assert not is_repeatable("enqueue", request, Disconnected("Lost."))


def test_the_pause_is_at_least_what_the_server_says() -> None:
    """Coming back sooner would be refused again."""
    assert pause_s(RateLimited("Too often.", retry_after_ms=700), 0.05) == 0.7
    assert pause_s(RateLimited("Too often.", retry_after_ms=7), 0.05) == 0.05
    assert pause_s(Disconnected("Lost.", retry_after_ms=700), 0.05) == 0.05
