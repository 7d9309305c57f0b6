"""Fills the store: two eras of requests to a broker on a fake clock."""

from __future__ import annotations

from pathlib import Path

from fairlane.adapters.rocksdb.store import RocksDbStore
from fairlane.broker.settings import Settings
from fairlane.journal import codec, records
from fairlane.model.message import Delivery, NewMessage
from fairlane.model.views import DeadLetterFilter
from fairlane.testing.clock import FakeClock
from fairlane.testing.stepped import SteppedBroker
from golden.packing import packed
from golden.terms import (
    BILLING,
    DAY_MS,
    HOOKED,
    HOUR_MS,
    OLD_WAITING,
    ORDERS,
    SECOND_ERA_MS,
    SECOND_MS,
    SMALL,
    START_MS,
    TRACE,
    WISHED,
    payload_of,
)


class Maker:
    """Fills a store, and remembers the broker's answers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock = FakeClock(START_MS)
        self.ids: dict[str, str] = {}
        self.tokens: dict[str, int] = {}
        self.etags: dict[str, str | None] = {}

    def make(self) -> bytes:
        """Run both eras, and return the files as they are before the store is closed: tables and a log."""
        brisk = Settings(segment_events=40, journal_retention_ms=SECOND_MS, reader_hold_ms=SECOND_MS)
        self.broker = SteppedBroker(RocksDbStore(self._folder), clock=self._clock, settings=brisk, carry_floor=20)
        self._first_era()
        self.broker.store.close()
        calm = Settings(segment_events=40)
        self.broker = SteppedBroker(RocksDbStore(self._folder), clock=self._clock, settings=calm)
        self._until(SECOND_ERA_MS)
        self._second_era()
        self._check_kinds()
        archive = packed(self._folder)
        self.broker.store.close()
        return archive

    def _until(self, at_ms: int) -> None:
        self.broker.advance(at_ms - self._clock.now_ms())

    def _put(self, queue: str, name: str, message: NewMessage | None = None) -> None:
        terms = {} if message is None else {field: getattr(message, field) for field in message.__struct_fields__}
        self.ids[name] = self.broker.enqueue(queue, NewMessage(**(terms | {"payload": payload_of(name)})))

    def _take(self, queue: str, name: str, *, visibility_ms: int | None = None, owner: str | None = None) -> Delivery:
        (delivery,) = self.broker.lease(queue, 1, visibility_ms=visibility_ms, owner=owner, with_state=True)
        if delivery.payload != payload_of(name):
            raise AssertionError(f"{name} was to be leased, not {delivery.payload!r}.")
        self.tokens[name] = delivery.token
        return delivery

    def _put_and_take(
        self, queue: str, name: str, *, visibility_ms: int | None = None, owner: str | None = None
    ) -> Delivery:
        self._put(queue, name)
        return self._take(queue, name, visibility_ms=visibility_ms, owner=owner)

    # -------------------------------------------------------------------------------------------------------- first era

    def _first_era(self) -> None:
        broker = self.broker
        brief = ORDERS | {"journal_retention_ms": None}
        for queue, policy in (("orders", brief), ("billing", BILLING), ("temporary", {})):
            broker.create_queue(queue, policy, by="admin")
        for key, value in (("throttle:mail:rate", "5"), ("throttle:mail:burst", "2"), ("gone", "x"), ("tier", "gold")):
            broker.set_config(key, value, by="admin")
        broker.set_reader("slow", 0)
        self._put_and_take("billing", "old leased", visibility_ms=10 * DAY_MS, owner="worker-1")
        broker.nack(self._put_and_take("billing", "old retried"), error="first", delay_ms=0)
        self._until(START_MS + SECOND_MS)
        broker.nack(self._take("billing", "old retried"), delay_ms=0, intent="defer")
        broker.nack(self._take("billing", "old retried"), intent="defer", delay_ms=HOUR_MS)
        broker.nack(self._put_and_take("billing", "old dead"), error="hopeless", intent="dead")
        stateful = self._put_and_take("billing", "old state")
        self.etags["old state"] = broker.set_state(stateful, b"step 1", etag=None)
        broker.nack(stateful, intent="defer", delay_ms=3 * HOUR_MS)
        self._put("billing", "old done", NewMessage(dedup_id="dedup done"))
        broker.ack(self._take("billing", "old done"))
        self._put("billing", "old delayed", NewMessage(delay_ms=2 * HOUR_MS))
        broker.pause("billing", key="slowpoke")
        self._put("billing", "old paused", NewMessage(fairness_key="slowpoke"))
        self._put("billing", "old waiting", OLD_WAITING)
        self._put("orders", "old capped", NewMessage(headers={"tenant": "clinic", "cap": "4"}))
        for _ in range(12):
            self._make_noise()

    def _make_noise(self) -> None:
        """Grow the journal until the base moves and old segments are trimmed."""
        self.broker.enqueue_many("temporary", [NewMessage(payload=b"noise")] * 10)
        self.broker.ack_many("temporary", self.broker.lease("temporary", 10))
        self.broker.advance(SECOND_MS)

    # ------------------------------------------------------------------------------------------------------- second era

    def _second_era(self) -> None:
        broker = self.broker
        if broker.engine.ledger.base == 1 or broker.engine.ledger.trimmed == 1:
            raise AssertionError("The first era was to be carried and trimmed.")
        broker.create_queue("hooked", HOOKED)
        broker.create_queue("small", SMALL)
        broker.update_queue("orders", ORDERS, by="admin")
        broker.set_config("gone", None, by="admin")
        broker.set_config("throttle:orders/mail:rate", "100")
        self._write_orders()
        self._write_billing()
        self._write_hooked()
        self._write_small()
        self._put("temporary", "purged")
        broker.purge("temporary")
        broker.delete_queue("temporary", by="admin")
        broker.set_reader("etl", broker.engine.ledger.next_sequence - 1)
        broker.set_reader("gone", 0)
        broker.remove_reader("gone")
        broker.pause("small")

    def _write_orders(self) -> None:
        broker = self.broker
        declared = {"tenant": "acme", "app": "web", "weight": "5", "cost": "3", "priority": "high", "cap": "6"}
        self._put("orders", "declared", NewMessage(headers=declared | TRACE))
        self._put("orders", "wished", WISHED)
        self._put("orders", "late", NewMessage(headers={"tenant": "bakery"}, deadline_ms=SECOND_MS))
        self._until(SECOND_ERA_MS + 2 * SECOND_MS)
        done = self._take("orders", "declared", owner="worker-2")
        self.ids["forwarded"] = broker.ack(
            done, cost=9, forward={"billing": [NewMessage(payload=payload_of("forwarded"), delay_ms=DAY_MS)]}
        )[0]

    def _write_billing(self) -> None:
        """Leave one message for each outcome of a lease. Messages that could be leased again are delayed by a day."""
        broker = self.broker
        broker.pause("billing", key="acme")
        broker.extend(_leased("billing", self.ids["old leased"], self.tokens["old leased"]), visibility_ms=20 * DAY_MS)
        self._put_and_take("billing", "expired", visibility_ms=100)
        self._until(SECOND_ERA_MS + 3 * SECOND_MS)
        consumer, got = broker.attach("billing", credit=1, owner="worker-3")
        self._put("billing", "released")
        if [delivery.payload for delivery in got] != [payload_of("released")]:
            raise AssertionError("The consumer was to get the message.")
        broker.detach(consumer)
        broker.nack(self._put_and_take("billing", "worn out"), error="once", delay_ms=0)
        broker.nack(self._take("billing", "worn out"), error="twice")
        broker.nack(self._put_and_take("billing", "redriven"), error="please again", intent="dead")
        broker.redrive("billing.dlq", wanted=DeadLetterFilter(error="please"), by="admin")
        broker.nack(self._take("billing", "redriven"), intent="defer", delay_ms=DAY_MS)
        stateless = self._put_and_take("billing", "state removed")
        etag = broker.set_state(stateless, b"brief", etag=None)
        broker.set_state(stateless, None, etag=etag)
        broker.nack(stateless, intent="defer", delay_ms=DAY_MS)
        stateful = self._put_and_take("billing", "state leased", visibility_ms=DAY_MS, owner="worker-4")
        etag = broker.set_state(stateful, b"step 1", etag=None)
        self.etags["state leased"] = broker.set_state(stateful, bytes(range(256)), etag=etag)
        self._put("billing", "cancelled")
        broker.cancel("billing", self.ids["cancelled"])
        self._put("billing", "once", NewMessage(dedup_id="dedup once", delay_ms=DAY_MS))
        self._put("billing", "many bytes", NewMessage(delay_ms=DAY_MS))

    def _write_hooked(self) -> None:
        headers = {"tenant": "acme", "weight": "3", "region": "eu"}
        self._put("hooked", "retried by hook", NewMessage(headers=headers))
        self.broker.nack(self._take("hooked", "retried by hook"), error="try again")
        self._put("hooked", "killed by hook", NewMessage(headers={"tenant": "bakery"}))
        self.broker.nack(self._take("hooked", "killed by hook"), error="fatal")

    def _write_small(self) -> None:
        self._put("small", "too late", NewMessage(deadline_ms=100))
        self._until(SECOND_ERA_MS + 4 * SECOND_MS)
        for name in ("dropped", "kept 1", "kept 2"):
            self._put("small", name)

    def _check_kinds(self) -> None:
        """Check that the remaining journal has every kind of record."""
        kinds = {
            type(record).__name__
            for stored in self.broker.store.pages(0)
            for record in codec.decode(stored.page).records
        }
        known = {kind.__name__ for kind in records.AnyRecord.__args__}
        if known - kinds:
            raise AssertionError(f"The store has no {sorted(known - kinds)}.")


def _leased(queue: str, message_id: str, token: int) -> Delivery:
    return Delivery(
        id=message_id,
        queue=queue,
        token=token,
        payload=b"",
        headers={},
        fairness_key="",
        attempt=0,
        expires_ms=0,
        enqueued_ms=0,
        correlation_id="",
    )
