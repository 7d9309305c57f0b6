"""Brokers on a fake clock, and short ways to ask them for things without waiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from fairlane.errors import FairlaneError
from fairlane.model.message import Delivery, NewMessage
from fairlane.testing.stepped import Pending, SteppedBroker
from fairlane.verbs.leases import Lease, LeasedMessages
from fairlane.verbs.messages import Enqueue, EnqueueResults
from fairlane.verbs.methods.conversions import ids_of

A = TypeVar("A")
T = TypeVar("T")


class Die:
    """Chance that always says the same."""

    def __init__(self, value: int) -> None:
        self._value = value

    def below(self, bound: int) -> int:
        return min(self._value, bound - 1)


def broker_with(policy: Mapping[str, object] | None = None, **opened: Any) -> SteppedBroker:
    """Return a broker with one queue, ``q``."""
    broker = SteppedBroker(**opened)
    broker.create_queue("q", policy)
    return broker


def message(payload: bytes = b"", **terms: Any) -> NewMessage:
    """Return a new message; what its terms are is up to the test, good or bad."""
    return NewMessage(payload=payload, **terms)


def lease_one(broker: SteppedBroker, queue: str = "q", **how: Any) -> Delivery:
    """Return the one message that is leased next."""
    (delivery,) = broker.lease(queue, 1, **how)
    return delivery


class Started(Generic[A, T]):
    """A request that was started, and what its answer says."""

    def __init__(self, pending: Pending[A], read: Callable[[A], T]) -> None:
        self._pending = pending
        self._read = read
        self.done, self.cancel = pending.done, pending.cancel

    def get(self) -> T:
        """Return what the answer says, or raise the refusal."""
        return self._read(self._pending.get())


def start_lease(
    broker: SteppedBroker, queue: str = "q", count: int = 1, *, wait_ms: int = 60_000
) -> Started[LeasedMessages, list[Delivery]]:
    """Start to wait for messages, without waiting for the answer."""
    pending = broker.start(Lease(queue=queue, count=count, wait_ms=wait_ms))
    broker.step()
    return Started(pending, lambda answer: answer.deliveries)


def start_enqueue(
    broker: SteppedBroker, messages: Sequence[NewMessage], *, wait_ms: int = 30_000
) -> Started[EnqueueResults, list[str | FairlaneError]]:
    """Start to enqueue into ``q``, without waiting for the answer."""
    pending = broker.start(Enqueue(queue="q", messages=list(messages), wait_ms=wait_ms))
    broker.step()
    return Started(pending, lambda answer: ids_of(answer.results))


def codes(results: Sequence[object]) -> list[str | None]:
    """Return the code of each error among results, None for what is none."""
    return [result.code if isinstance(result, FairlaneError) else None for result in results]


def payloads(deliveries: Sequence[Delivery]) -> list[bytes]:
    """Return the payloads of deliveries, in order."""
    return [delivery.payload for delivery in deliveries]


def bury(broker: SteppedBroker, payload: bytes = b"", *, error: str = "", **terms: Any) -> str:
    """Make a dead letter of ``q``, and return its id."""
    message_id = broker.enqueue("q", payload, **terms)
    delivery = lease_one(broker)
    assert delivery.id == message_id
    broker.nack(delivery, intent="dead", error=error)
    return message_id


def buried(count: int, **policy: object) -> tuple[SteppedBroker, list[str]]:
    """Return a broker with so many dead letters, of payloads 0, 1, 2 and so on, and their ids."""
    broker = broker_with(policy)
    return broker, [bury(broker, b"%d" % n) for n in range(count)]
