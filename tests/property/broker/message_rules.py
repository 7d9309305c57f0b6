"""The rules of messages: enqueue, lease, ack, nack, extend, state, cancel; beside a naive model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fairlane.broker.settings import Settings
from fairlane.errors import FairlaneError
from fairlane.model.message import NEVER_MS, Delivery, NewMessage
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.methods.conversions import ids_of
from tests.property.broker.model import BACKOFF_MS, DLQ_POLICY, POLICY, QUEUES, WINDOW_MS, Known, Model
from tests.property.broker.picture import contents

queues = st.sampled_from(QUEUES)
own_queues = st.sampled_from(("a", "b"))
delays = st.sampled_from((0, 0, 50, 300))
new_messages = st.builds(
    NewMessage,
    payload=st.binary(max_size=4),
    fairness_key=st.sampled_from(("x", "y", "z")),
    weight=st.sampled_from((None, 1, 3)),
    cost=st.sampled_from((None, 1, 7)),
    priority=st.sampled_from((None, "high", "low")),
    throttles=st.sampled_from(((), ("open",))),
    delay_ms=delays,
    deadline_ms=st.sampled_from((None, None, 200, 1_000)),
    dedup_id=st.sampled_from((None, None, "d1", "d2")),
    unique_key=st.sampled_from((None, None, None, "u1", "u2")),
    headers=st.dictionaries(st.sampled_from("hk"), st.text(max_size=3), max_size=2),
)
bad_messages = st.sampled_from((NewMessage(weight=0), NewMessage(fairness_key=""), NewMessage(cost=10**9)))
batches = st.lists(st.one_of(new_messages, new_messages, new_messages, bad_messages), min_size=1, max_size=5)


def unleased(queue: str, message_id: str, token: int) -> Delivery:
    return Delivery(
        id=message_id,
        queue=queue,
        token=token,
        payload=b"",
        headers={},
        fairness_key="",
        attempt=1,
        expires_ms=0,
        enqueued_ms=0,
        correlation_id="",
    )


def anything_held(machine: MessageRules) -> bool:
    return any(machine.model.is_held(i, known.token) for i, known in machine.model.messages.items())


class MessageRules(RuleBasedStateMachine):
    """Calls every verb about messages, and knows the expected result."""

    @initialize(carry_floor=st.sampled_from((5, 40, 500_000)))
    def open(self, carry_floor: int) -> None:
        settings = Settings(segment_events=25, journal_retention_ms=1_000, reader_hold_ms=2_000, cycle_events_max=40)
        self.broker = SteppedBroker(settings=settings, carry_floor=carry_floor)
        self.model = Model(self.broker.clock.now_ms())
        self.ids: list[str] = ["0" * 16]
        self.tokens: list[int] = [0, 1]
        for name in ("a", "b"):
            self.make(name)
            self.enqueue(name, [NewMessage(payload=b"%d" % n, fairness_key="xyz"[n % 3]) for n in range(6)])
            self.lease(name, 3, None)

    def make(self, name: str) -> None:
        action = "dlq" if name == "b" else "drop"
        self.broker.create_queue(name, {**POLICY, "deadline_action": action})
        self.broker.update_queue(f"{name}.dlq", DLQ_POLICY)

    # ------------------------------------------------------------------------------------------------------- messages

    @rule(queue=own_queues, batch=batches)
    def enqueue(self, queue: str, batch: list[NewMessage]) -> None:
        results = self.broker.enqueue_many(queue, batch)
        self.expect_enqueued(queue, batch, results)

    @rule(queue=own_queues, batch=batches, numbers=st.sets(st.integers(0, 300), min_size=5, max_size=5))
    def enqueue_numbered(self, queue: str, batch: list[NewMessage], numbers: set[int]) -> None:
        some = tuple(sorted(numbers)[: len(batch)])
        request = Enqueue(queue=queue, messages=batch, producer="p", numbers=some)
        results: list[Any] = ids_of(self.broker.call(request).results)
        rows, news = [], []
        for row, (number, result) in enumerate(zip(some, results, strict=True)):
            known = self.model.numbered.get((queue, number))
            if known is not None and known[1] > self.model.now_ms:
                assert result == known[0]
            else:
                rows.append(row)
                news.append((number, result))
        before = len(self.ids)
        self.expect_enqueued(queue, [batch[row] for row in rows], [results[row] for row in rows])
        until_ms, taken = self.model.now_ms + WINDOW_MS, set(self.ids[before:])
        for number, result in news:
            if result in taken:
                taken.remove(result)  # a second one with the same dedup id was not taken in
                self.model.numbered[queue, number] = (result, until_ms)

    def expect_enqueued(self, queue: str, batch: list[NewMessage], results: list[Any]) -> None:
        first: dict[tuple[str, str, str], Any] = {}
        first_unique: dict[tuple[str, str], Any] = {}
        for message, result in zip(batch, results, strict=True):
            # An id stands for a message of one tenant only.
            dedup = None if message.dedup_id is None else (queue, str(message.fairness_key), message.dedup_id)
            known = self.model.dedups.get(dedup) if dedup is not None else None
            unique = None if message.unique_key is None else (str(message.fairness_key), message.unique_key)
            if message.weight == 0 or message.fairness_key == "" or message.cost == 10**9:
                assert result.code == "invalid_argument"
            elif known is not None and known[1] > self.model.now_ms:
                assert result == known[0]
            elif dedup in first:
                assert _said(result) == _said(first[dedup])
            elif unique in first_unique:
                assert _said(result) == _said(first_unique[unique])
            elif (holder := self.model.unique_holder(queue, message)) is not None:
                assert result == holder
            elif self.model.room(queue) <= 0:
                assert result.code == "queue_full"
                if dedup is not None:
                    first[dedup] = result
                if unique is not None:
                    first_unique[unique] = result
            else:
                self.take_in(queue, message, result)
                if dedup is not None:
                    first[dedup] = result
                    self.model.dedups[dedup] = (result, self.model.now_ms + WINDOW_MS)
                if unique is not None:
                    first_unique[unique] = result

    def take_in(self, queue: str, message: NewMessage, message_id: str) -> None:
        assert message_id not in self.ids
        self.ids.append(message_id)
        now_ms = self.model.now_ms
        self.model.messages[message_id] = Known(
            queue,
            message.payload,
            str(message.fairness_key),
            due_ms=now_ms + message.delay_ms if message.delay_ms else 0,
            deadline_ms=None if message.deadline_ms is None else now_ms + message.deadline_ms,
            unique=message.unique_key,
        )

    @rule(queue=queues, count=st.integers(1, 6), visibility_ms=st.sampled_from((None, 100, 1_000)))
    def lease(self, queue: str, count: int, visibility_ms: int | None) -> None:
        eligible = self.model.eligible(queue)
        deliveries = self.broker.lease(queue, count, visibility_ms=visibility_ms, owner="me")
        found = {delivery.id for delivery in deliveries}
        assert len(found) == len(deliveries) == min(count, len(eligible))
        assert found <= eligible
        for delivery in deliveries:
            assert delivery.expires_ms == self.model.now_ms + (visibility_ms or 30_000)
            self.model.lease(delivery)
            self.tokens.append(delivery.token)

    @rule(queue=own_queues, count=st.integers(1, 9), batch=batches)
    def enqueue_and_lease(self, queue: str, count: int, batch: list[NewMessage]) -> None:
        self.enqueue(queue, batch)
        self.lease(queue, count, 1_000)

    @precondition(anything_held)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        self.nack(data, "dead", None)

    def held(self, data: st.DataObject) -> Delivery:
        ids = [i for i, known in self.model.messages.items() if self.model.is_held(i, known.token)]
        message_id = data.draw(st.sampled_from(ids))
        known = self.model.messages[message_id]
        return unleased(known.queue, message_id, known.token)

    @precondition(anything_held)
    @rule(data=st.data(), cost=st.sampled_from((None, 0, 9)))
    def ack(self, data: st.DataObject, cost: int | None) -> None:
        held = self.held(data)
        self.broker.ack(held, cost=cost)
        del self.model.messages[held.id]

    @precondition(anything_held)
    @rule(data=st.data(), into=own_queues, batch=st.lists(new_messages, min_size=1, max_size=2))
    def ack_and_forward(self, data: st.DataObject, into: str, batch: list[NewMessage]) -> None:
        held = self.held(data)
        batch = [NewMessage(payload=message.payload, fairness_key=message.fairness_key) for message in batch]
        place = int(held.queue == into)
        if self.model.room(into) + place < len(batch):
            before = contents(self.broker.engine.ledger)
            with pytest.raises(FairlaneError) as caught:
                self.broker.ack(held, forward={into: batch})
            assert caught.value.code == "queue_full"
            assert contents(self.broker.engine.ledger) == before
            return
        results = self.broker.ack(held, forward={into: batch})
        del self.model.messages[held.id]
        self.expect_enqueued(into, batch, list(results))

    @precondition(anything_held)
    @rule(data=st.data(), intent=st.sampled_from(("failure", "defer", "dead")), delay_ms=st.sampled_from((None, 0, 70)))
    def nack(self, data: st.DataObject, intent: Any, delay_ms: int | None) -> None:
        held = self.held(data)
        self.broker.nack(held, intent=intent, delay_ms=delay_ms, error="" if intent == "defer" else "no")
        default_ms = 0 if intent == "defer" else BACKOFF_MS
        self.model.give_back(
            held.id,
            failed=intent != "defer",
            dead=intent == "dead",
            at_ms=self.model.now_ms,
            delay_ms=default_ms if delay_ms is None else delay_ms,
        )
        self.model.meet_deadlines()

    @precondition(anything_held)
    @rule(data=st.data(), visibility_ms=st.sampled_from((1, 100, 5_000)))
    def extend(self, data: st.DataObject, visibility_ms: int) -> None:
        held = self.held(data)
        expires_ms = self.broker.extend(held, visibility_ms=visibility_ms)
        is_claimed = self.model.messages[held.id].expires_ms == NEVER_MS
        assert expires_ms == (NEVER_MS if is_claimed else self.model.now_ms + visibility_ms)
        self.model.messages[held.id].expires_ms = expires_ms

    @precondition(anything_held)
    @rule(data=st.data(), state=st.sampled_from((None, b"", b"one", b"two")), is_right=st.booleans())
    def set_state(self, data: st.DataObject, state: bytes | None, is_right: bool) -> None:
        held = self.held(data)
        known = self.model.messages[held.id]
        etag = None if known.state is None else known.state[0]
        if not is_right:
            with pytest.raises(FairlaneError) as caught:
                self.broker.set_state(held, state, etag="f" * 16)
            assert caught.value.code == "state_mismatch"
            return
        new = self.broker.set_state(held, state, etag=etag)
        assert (new is None) == (state is None)
        known.state = None if state is None or new is None else (new, state)

    @rule(data=st.data(), only_waiting=st.booleans())
    def cancel(self, data: st.DataObject, only_waiting: bool) -> None:
        message_id = data.draw(st.sampled_from(self.ids))
        known = self.model.messages.get(message_id)
        if known is None:
            with pytest.raises(FairlaneError) as caught:
                self.broker.cancel("a", message_id)
            assert caught.value.code == self.model.missing(message_id)
        elif known.token and (only_waiting or known.expires_ms == NEVER_MS):
            with pytest.raises(FairlaneError) as caught:
                self.broker.cancel(known.queue, message_id, only_waiting=only_waiting)
            assert caught.value.code == "not_pending"
        else:
            self.broker.cancel(known.queue, message_id, only_waiting=only_waiting)
            del self.model.messages[message_id]
            if known.token:
                self.model.revoked[message_id] = known.expires_ms


def _said(result: Any) -> Any:
    """Return an id, or the code and cause of an error: errors with the same text are the same answer."""
    return (result.code, result.cause) if isinstance(result, FairlaneError) else result
