"""What a client knows of splits, and how it makes one answer of those of several partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from fairlane.client.batching import Asked
from fairlane.client.spread import Known, Splits, lease_in_turn, split_of, spread
from fairlane.errors import (
    Disconnected,
    FairlaneError,
    Forbidden,
    InvalidArgument,
    QueueMoving,
    QueueNotFound,
    QueueSplit,
)
from fairlane.model.ids import MessageIds
from fairlane.model.message import DeadLetterOrigin, Delivery, NewMessage, Receipt
from fairlane.model.partitions import NUMBER_BITS, Split, partition_of_key
from fairlane.verbs.leases import Ack, Lease, LeasedMessages
from fairlane.verbs.messages import Enqueue, EnqueueResult, EnqueueResults, Result, Results
from fairlane.wire.spread import of_whole

FOUR = Split(partitions=4, made=4)


def said(partitions: int, made: int) -> QueueSplit:
    """Return what a node says."""
    return QueueSplit("It is split.", partitions=partitions, made=made, by_message=False)


def id_in(at: int, number: int = 1) -> str:
    """Return the id of a message in a partition."""
    return MessageIds().id_of((at << NUMBER_BITS) + number)


class Partitions:
    """Partitions that answer, except those for which there are refusals; it remembers what was asked of which."""

    def __init__(self, refusals: Mapping[str, FairlaneError] | None = None) -> None:
        self.refusals = dict(refusals or {})
        self.asked: list[tuple[str, list[Any]]] = []
        self.deliveries: dict[str, list[Delivery]] = {}

    async def ask(self, asked: Asked) -> Any:
        request: Any = asked.request
        if isinstance(request, Lease):
            self.asked.append((request.queue, []))
            self._check(request.queue)
            return LeasedMessages(deliveries=self.deliveries.get(request.queue, []))
        items = [message.payload for message in getattr(request, "messages", ())]
        items += [receipt.id for receipt in getattr(request, "receipts", ())]
        self.asked.append((request.queue, items))
        if b"bad" in items:
            raise InvalidArgument("One of them is bad.")
        self._check(request.queue)
        if isinstance(request, Enqueue):
            return EnqueueResults(results=[EnqueueResult(id=f"{request.queue}/{item.decode()}") for item in items])
        return Results(results=[Result()] * len(items))

    def _check(self, queue: str) -> None:
        if queue in self.refusals:
            raise self.refusals[queue]


def enqueued(partitions: Partitions, messages: list[NewMessage]) -> list[str]:
    """Spread an enqueue, and return what came of each message: an id or the code of an error."""
    asked = Asked("enqueue", Enqueue(queue="orders", messages=messages))
    answer = asyncio.run(spread(asked, Known(FOUR, 0.0), partitions.ask))
    return [result.id or result.error.code for result in answer.results]


def of_keys(*keys: str) -> list[NewMessage]:
    """Return a message for each key, with its place as payload."""
    return [NewMessage(payload=b"%d" % number, fairness_key=key) for number, key in enumerate(keys)]


def keys_of(at: int, count: int) -> list[str]:
    """Return keys that belong to a partition of four."""
    return [key for key in map(str, range(1_000)) if partition_of_key(key, 4) == at][:count]


def test_a_split_is_believed_for_two_seconds_and_used_a_little_longer() -> None:
    """After two seconds it is to be asked again, once; it is used meanwhile, and not believed after six."""
    splits = Splits()
    assert not splits
    known = splits.note("orders", said(3, 4), 100.0)
    assert splits.of("orders", 100.0) is known
    assert known.split == Split(partitions=3, made=4, by_message=False)
    assert [known.is_due(now_s) for now_s in (100.0, 101.9, 102.0, 105.0)] == [False, False, True, True]
    known.is_asked = True
    assert not known.is_due(103.0)
    assert splits.of("orders", 105.9) is known
    assert splits.of("mails", 105.9) is None
    assert splits.of("orders", 106.0) is None
    assert not splits


def test_what_is_said_again_counts_from_then() -> None:
    """A node that says it again, or something new, makes it as fresh as at first."""
    splits = Splits()
    known = splits.note("orders", said(4, 4), 100.0)
    known.is_asked = True
    assert splits.note("orders", said(2, 4), 105.0) is known
    assert known.split == split_of(said(2, 4))
    assert [known.is_due(now_s) for now_s in (105.0, 107.0)] == [False, True]
    splits.forget("orders")
    splits.forget("orders")
    assert splits.of("orders", 105.0) is None


def test_partitions_that_do_not_answer_are_asked_last() -> None:
    """All partitions take turns in being the first, except those that failed, until they answer again."""
    known = Known(FOUR, 0.0)
    assert [known.order(turn) for turn in (0, 1, 7)] == [[0, 1, 2, 3], [1, 2, 3, 0], [3, 0, 1, 2]]
    known.doubt(1)
    known.doubt(2)
    assert [known.order(turn) for turn in (0, 1, 2)] == [[0, 3, 1, 2], [3, 0, 1, 2], [3, 0, 2, 1]]
    known.trust(1)
    assert known.order(1) == [1, 3, 0, 2]


def test_results_come_in_the_order_of_the_request() -> None:
    """Messages of several partitions are asked for once at each, and each result is at the place of its message."""
    (first,), (second, third), partitions = keys_of(0, 1), keys_of(3, 2), Partitions()
    results = enqueued(partitions, of_keys(second, first, third, first, second))
    assert results == ["orders~3/0", "orders~0/1", "orders~3/2", "orders~0/3", "orders~3/4"]
    assert sorted(partitions.asked) == [("orders~0", [b"1", b"3"]), ("orders~3", [b"0", b"2", b"4"])]


def test_only_what_a_partition_did_not_do_is_an_error() -> None:
    """Items of a partition that is away are refused, and those of the others keep their results."""
    (first,), (second,) = keys_of(0, 1), keys_of(1, 1)
    away = Partitions({"orders~1": QueueMoving("It moves.")})
    assert enqueued(away, of_keys(first, second, first)) == ["orders~0/0", "queue_moving", "orders~0/2"]
    gone = Partitions({"orders~1": QueueNotFound("There is none.")})
    assert enqueued(gone, of_keys(first, second)) == ["orders~0/0", "queue_not_found"]
    both = Partitions({"orders~0": Disconnected("Lost."), "orders~1": QueueMoving("It moves.")})
    assert enqueued(both, of_keys(first, second)) == ["disconnected", "queue_moving"]


def test_what_all_refuse_is_raised() -> None:
    """If no partition does anything, and never will, the call fails as it would for a queue that is whole."""
    (first,), (second,) = keys_of(0, 1), keys_of(1, 1)
    for refusal in (QueueNotFound("There is none."), QueueSplit("It is split.")):
        partitions = Partitions({"orders~0": refusal, "orders~1": refusal})
        with pytest.raises(type(refusal)):
            enqueued(partitions, of_keys(first, second))
    with pytest.raises(InvalidArgument):
        enqueued(Partitions(), [NewMessage(payload=b"bad", fairness_key=first)])


def test_one_at_fault_is_found_among_many() -> None:
    """A partition that refuses all of its items is asked for each of them, so that only the bad one is refused."""
    (first,), (second,) = keys_of(0, 1), keys_of(1, 1)
    bad = NewMessage(payload=b"bad", fairness_key=second)
    results = enqueued(Partitions(), [*of_keys(first, second, second), bad])
    assert results == ["orders~0/0", "orders~1/1", "orders~1/2", "invalid_argument"]


def test_acks_go_where_the_ids_say() -> None:
    """Receipts go to the partition of their id, and an error of one does not affect others."""
    partitions = Partitions({"orders~2": Disconnected("Lost.")})
    ids = [id_in(2), id_in(0), id_in(1), id_in(0, 2)]
    request = Ack(queue="orders", receipts=[Receipt(id=one, token=1) for one in ids])
    answer = asyncio.run(spread(Asked("ack", request), Known(FOUR, 0.0), partitions.ask))
    codes = [result.error and result.error.code for result in answer.results]
    assert codes == ["disconnected", None, None, None]
    assert sorted(partitions.asked) == [
        ("orders~0", [id_in(0), id_in(0, 2)]),
        ("orders~1", [id_in(1)]),
        ("orders~2", [id_in(2)]),
    ]


def test_nothing_is_asked_for_nothing() -> None:
    """A request without items is answered without asking anybody."""
    partitions = Partitions()
    assert enqueued(partitions, []) == []
    assert partitions.asked == []


def delivery(at: int, queue: str, dead: DeadLetterOrigin | None = None) -> Delivery:
    """Return a leased message of a partition."""
    return Delivery(
        id=id_in(at),
        queue=queue,
        token=1,
        payload=b"",
        headers={},
        fairness_key="default",
        attempt=1,
        expires_ms=1,
        enqueued_ms=0,
        correlation_id="",
        dead=dead,
    )


def leased(partitions: Partitions, known: Known, turn: int) -> LeasedMessages | FairlaneError:
    """Lease in turn."""
    asked = Asked("lease", Lease(queue="orders", count=5, wait_ms=9), 9)
    return asyncio.run(lease_in_turn(asked, known, turn, partitions.ask))


def test_the_first_partition_that_has_anything_is_leased_from() -> None:
    """Partitions are asked from the one whose turn it is, and no further than to the first that has something."""
    partitions, known = Partitions(), Known(FOUR, 0.0)
    partitions.deliveries = {"orders~0": [delivery(0, "orders")], "orders~3": [delivery(3, "orders~3")]}
    found = leased(partitions, known, 1)
    assert isinstance(found, LeasedMessages)
    assert [(one.id, one.queue) for one in found.deliveries] == [(id_in(3), "orders")]
    assert [queue for queue, _ in partitions.asked] == ["orders~1", "orders~2", "orders~3"]


def test_a_lease_passes_over_partitions_that_are_away() -> None:
    """Those that do not answer are no error as long as one answers, and are asked last next time."""
    away: dict[str, FairlaneError] = {"orders~0": QueueMoving("It moves."), "orders~1": QueueNotFound("None.")}
    partitions, known = Partitions(away), Known(FOUR, 0.0)
    assert leased(partitions, known, 0) == LeasedMessages(deliveries=[])
    assert known.order(0) == [2, 3, 0, 1]
    partitions.refusals = {f"orders~{at}": Disconnected("Lost.") for at in range(4)}
    assert isinstance(leased(partitions, known, 0), Disconnected)
    partitions.refusals = {"orders~2": Forbidden("No.")}
    with pytest.raises(Forbidden):
        leased(partitions, known, 2)


def test_deliveries_name_the_whole_queue() -> None:
    """What comes from a partition is named after its queue, also where it died."""
    dead = DeadLetterOrigin(origin="orders~2", reason="requested", at_ms=1)
    [plain] = of_whole("orders", [delivery(0, "orders")])
    [second] = of_whole("orders.dlq", [delivery(2, "orders~2.dlq", dead)])
    assert (plain.queue, second.queue) == ("orders", "orders.dlq")
    assert second.dead is not None
    assert second.dead.origin == "orders"
