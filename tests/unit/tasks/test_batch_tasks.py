"""Tasks whose function gets the items of many jobs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fairlane.errors import InvalidArgument, MessageDead
from fairlane.tasks import App
from fairlane.testing import make_message, verdict
from fairlane.worker import Acknowledge, DeadLetter, Retry

from .definitions import Address, Customer, Item


def test_a_batch_task_gets_the_items_of_many_jobs() -> None:
    """A full batch goes at once, and the rest when the first of them has waited long enough."""
    app, batches = App(), list[list[str]]()

    @app.task(queue="items", key="name", batch=2, batch_ms=60_000)
    async def insert(items: list[Item]) -> None:
        batches.append([item.name for item in items])

    with app.testing() as jobs:
        begun = jobs.now
        for name in "abcde":
            insert.send_sync(Item(name, 5))
        insert.send_many_sync([{"name": "f", "price_cents": 5}, {"name": "g", "price_cents": 5}])
        assert jobs.run().handled == 7
        assert (jobs.now - begun).total_seconds() >= 60
    assert batches == [["a", "b"], ["c", "d"], ["e", "f"], ["g"]]
    message = insert.message(Item("cup", 5))
    assert (message.payload, message.fairness_key) == (b'{"name":"cup","price_cents":5}', "cup")


@pytest.mark.parametrize("is_async", [True, False])
def test_each_job_of_a_batch_ends_by_itself(is_async: bool) -> None:
    """A list of values and verdicts keeps the results of some jobs, retries one and kills another."""
    app, threads = App(), set[str]()

    def price(items: list[Item]) -> list[int | Retry | DeadLetter | None]:
        threads.add(threading.current_thread().name)
        known: dict[str, int | Retry | DeadLetter | None] = {"bad": DeadLetter("no such item"), "free": None}
        if len(items) > 1:  # the others come again alone
            known["later"] = Retry(delay_ms=1_000)
        return [known.get(item.name, item.price_cents) for item in items]

    async def price_later(items: list[Item]) -> list[int | Retry | DeadLetter | None]:
        return price(items)

    task = app.task(name="price", queue="items", batch=4, result_ttl="1h")(price_later if is_async else price)
    with app.testing() as jobs:
        sent = [task.send_sync(Item(name, 5)) for name in ("cup", "bad", "later", "free")]
        counters = jobs.run()
        assert (counters.handled, counters.dead, counters.retried) == (3, 1, 1)
        assert [sent[at].result() for at in (0, 2, 3)] == [5, 5, None]
        with pytest.raises(MessageDead, match="no such item"):
            sent[1].result()
    assert all(name.startswith("fairlane-harness" if is_async else "fairlane-handler-items") for name in threads)


def test_a_failed_batch_fails_each_job_and_an_unfit_item_only_its_own() -> None:
    """An exception is retried for each job; an item that does not fit is a dead letter and never in a batch."""
    app, batches = App(), list[int]()

    @app.task(queue="addresses", batch=3, policy={"backoff_ms": 1_000, "backoff_jitter": 0})
    def visit(addresses: list[Address]) -> None:
        batches.append(len(addresses))
        if len(batches) == 1:
            raise ConnectionError("the road is closed")

    with app.testing() as jobs:
        for number in range(3):
            visit.send_sync(Address("Elm", number))
        jobs.client.enqueue("addresses", b'{"street": "Elm"}')
        counters = jobs.run()
        (letter,) = jobs.dead_letters("addresses")
    assert batches == [3, 3]
    assert (counters.handled, counters.failed, counters.retried, counters.dead) == (3, 4, 3, 1)
    assert "number" in letter.errors[-1].error


def test_items_are_checked_when_they_are_sent() -> None:
    """Errors name the field; keys come from a field or from a function of the item."""
    app = App()

    @app.task(batch=10, key=lambda customer: customer.email, order_key="age")
    def greet(customers: list[Customer]) -> None: ...

    message = greet.message(Customer(email="a@b.c", age=7))
    assert (message.fairness_key, message.order_key) == ("a@b.c", "7")
    with pytest.raises(InvalidArgument, match=r"Invalid arguments of task 'greet': age: .*integer"):
        greet.send_many_sync([{"email": "a@b.c", "age": "old"}])
    with pytest.raises(InvalidArgument, match="takes one item, or its fields by name"):
        greet.message(*[Customer(email="a@b.c", age=7)] * 2)
    with pytest.raises(InvalidArgument, match=r"no parameter 'mail' for its fairness key"):

        @app.task(batch=10, key="mail")
        def write(customers: list[Customer]) -> None: ...


def test_a_batch_task_can_be_tested_without_a_broker() -> None:
    """One message is a batch of one, when its time has come."""
    app = App()

    @app.task(queue="items", batch=5, batch_ms=0)
    async def insert(items: list[Item]) -> list[Retry | None]:
        return [None if item.price_cents else Retry(delay_ms=5) for item in items]

    assert verdict(app, make_message(insert.message(Item("cup", 1)), queue="items")) == Acknowledge()
    assert verdict(app, make_message(insert.message(Item("cup", 0)), queue="items")) == Retry(delay_ms=5)


def test_a_batch_that_can_not_be_is_refused() -> None:
    """The function takes one list, and the batch fits into the concurrency."""
    app = App()
    with pytest.raises(InvalidArgument, match=r"only parameter must be a list .*rows: list\[Row\]"):

        @app.task(batch=5)
        def single(item: Any) -> None: ...

    for size, wait_ms, concurrency in ((0, 50, 8), (9, 50, 8), (5, -1, 8)):
        with pytest.raises(InvalidArgument, match=f"batch={size}, batch_ms={wait_ms} and concurrency=8"):

            @app.task(batch=size, batch_ms=wait_ms, concurrency=concurrency)
            def insert(items: list[Item]) -> None: ...
