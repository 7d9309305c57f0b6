"""A state machine over the broker's verbs, beside a naive model, with reopenings and time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fairlead.adapters.memory_store import MemoryStore
from fairlead.broker.settings import Settings
from fairlead.core.decide import decide
from fairlead.errors import FairleadError
from fairlead.model.message import Delivery, NewMessage, Receipt
from fairlead.model.names import number_of
from fairlead.testing.stepped import SteppedBroker
from tests.property.broker.drawn_commands import commands_about
from tests.property.broker.model import BACKOFF_MS, DLQ_POLICY, POLICY, QUEUES, WINDOW_MS, Known, Model
from tests.property.broker.picture import contents, folded, picture

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


def anything_held(machine: BrokerMachine) -> bool:
    return any(machine.model.is_held(i, known.token) for i, known in machine.model.messages.items())


class BrokerMachine(RuleBasedStateMachine):
    """Asks the broker for whatever can be asked, and knows what should come of it."""

    @initialize(carry_floor=st.sampled_from((5, 40, 500_000)))
    def open(self, carry_floor: int) -> None:
        settings = Settings(segment_events=25, journal_retention_ms=1_000, reader_hold_ms=2_000, turn_events=40)
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

    def expect_enqueued(self, queue: str, batch: list[NewMessage], results: list[Any]) -> None:
        first: dict[str, Any] = {}
        for message, result in zip(batch, results, strict=True):
            dedup = message.dedup_id
            known = self.model.dedups.get((queue, dedup)) if dedup is not None else None
            if message.weight == 0 or message.fairness_key == "" or message.cost == 10**9:
                assert result.code == "invalid_argument"
            elif known is not None and known[1] > self.model.now_ms:
                assert result == known[0]
            elif dedup in first:
                assert result is first[dedup] or result == first[dedup]
            elif self.model.room(queue) <= 0:
                assert result.code == "queue_full"
                first[str(dedup)] = result
            else:
                self.take_in(queue, message, result)
                first[str(dedup)] = result
                self.remember(queue, dedup, result)

    def remember(self, queue: str, dedup: str | None, message_id: str) -> None:
        if dedup is not None:
            self.model.dedups[queue, dedup] = (message_id, self.model.now_ms + WINDOW_MS)

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
            with pytest.raises(FairleadError) as caught:
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
        assert expires_ms == self.model.now_ms + visibility_ms
        self.model.messages[held.id].expires_ms = expires_ms

    @precondition(anything_held)
    @rule(data=st.data(), state=st.sampled_from((None, b"", b"one", b"two")), is_right=st.booleans())
    def set_state(self, data: st.DataObject, state: bytes | None, is_right: bool) -> None:
        held = self.held(data)
        known = self.model.messages[held.id]
        etag = None if known.state is None else known.state[0]
        if not is_right:
            with pytest.raises(FairleadError) as caught:
                self.broker.set_state(held, state, etag="f" * 16)
            assert caught.value.code == "state_mismatch"
            return
        new = self.broker.set_state(held, state, etag=etag)
        assert (new is None) == (state is None)
        known.state = None if state is None or new is None else (new, state)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        message_id = data.draw(st.sampled_from(self.ids))
        known = self.model.messages.get(message_id)
        if known is None:
            with pytest.raises(FairleadError) as caught:
                self.broker.cancel("a", message_id)
            assert caught.value.code == "message_not_found"
        elif known.token:
            with pytest.raises(FairleadError) as caught:
                self.broker.cancel(known.queue, message_id)
            assert caught.value.code == "not_pending"
        else:
            self.broker.cancel(known.queue, message_id)
            del self.model.messages[message_id]

    # ------------------------------------------------------------------------------------------- illegal transitions

    @rule(
        data=st.data(),
        queue=queues,
        verb=st.sampled_from(("ack", "forward", "nack", "defer", "dead", "extend", "state")),
    )
    def illegal(self, data: st.DataObject, queue: str, verb: str) -> None:
        message_id, token = data.draw(st.sampled_from(self.ids)), data.draw(st.sampled_from(self.tokens))
        known = self.model.messages.get(message_id)
        is_here = known is not None and known.queue == queue
        if is_here and self.model.is_held(message_id, token):
            return
        before = contents(self.broker.engine.ledger)
        with pytest.raises(FairleadError) as caught:
            self.ask(verb, unleased(queue, message_id, token))
        assert caught.value.code == ("lease_mismatch" if is_here else "message_not_found")
        assert contents(self.broker.engine.ledger) == before

    def ask(self, verb: str, delivery: Delivery) -> None:
        if verb == "ack":
            self.broker.ack(delivery)
        elif verb == "forward":
            self.broker.ack(delivery, forward={"a": [NewMessage()]})
        elif verb == "extend":
            self.broker.extend(delivery)
        elif verb == "state":
            self.broker.set_state(delivery, b"illegal", etag=None)
        elif verb == "nack":
            self.broker.nack(delivery)
        else:
            self.broker.nack(delivery, intent="defer" if verb == "defer" else "dead")

    @rule(queue=queues, data=st.data())
    def decide_only(self, queue: str, data: st.DataObject) -> None:
        ledger, now_ms = self.broker.engine.ledger, self.model.now_ms
        command = data.draw(commands_about(ledger, queue))
        before, asked = picture(ledger), repr(command)
        decisions = [repr(decide(ledger, command, now_ms)) for _ in range(2)]
        assert decisions[0] == decisions[1]
        assert (picture(ledger), ledger.dropped, repr(command)) == (before, [], asked)

    @rule(queue=queues, data=st.data())
    def ack_a_mixed_batch(self, queue: str, data: st.DataObject) -> None:
        pairs = st.tuples(st.sampled_from(self.ids), st.sampled_from(self.tokens))
        receipts = [Receipt(*pair) for pair in data.draw(st.lists(pairs, max_size=4))]
        results = self.broker.ack_many(queue, receipts)
        for receipt, result in zip(receipts, results, strict=True):
            known = self.model.messages.get(receipt.id)
            if known is not None and known.queue == queue and self.model.is_held(receipt.id, receipt.token):
                assert result is None
                known.token = -1  # acked by this batch: a repeat is a mismatch
            else:
                is_here = known is not None and known.queue == queue
                assert result is not None
                assert result.code == ("lease_mismatch" if is_here else "message_not_found")
        self.model.messages = {i: known for i, known in self.model.messages.items() if known.token != -1}

    # --------------------------------------------------------------------------------------------------------- admin

    @rule(
        queue=own_queues,
        verb=st.sampled_from(("pause", "pause", "purge", "update", "remake", "configure", "read_on")),
        data=st.data(),
    )
    def administer(self, queue: str, verb: str, data: st.DataObject) -> None:
        if verb == "pause":
            name = data.draw(queues)
            self.pause(name, key=data.draw(st.sampled_from((None, "x", "y"))), is_paused=data.draw(st.booleans()))
        elif verb == "purge":
            self.purge(data.draw(queues))
        elif verb == "update":
            fields = {
                "key_waiting_max": data.draw(st.sampled_from((None, 20))),
                "quantum": data.draw(st.integers(1, 5)),
            }
            self.broker.update_queue(queue, fields)
        elif verb == "remake":
            self.broker.delete_queue(queue)
            self.make(queue)
            self.model.drop_queue(queue)
        elif verb == "configure":
            value = data.draw(st.sampled_from((None, "1", "3")))
            self.broker.set_config("weight:a:x", value)
            assert self.broker.get_config("weight:a:x") == value
        else:
            self.broker.set_reader("reader", self.broker.engine.ledger.next_sequence - 1)

    def pause(self, queue: str, *, key: str | None, is_paused: bool) -> None:
        (self.broker.pause if is_paused else self.broker.resume)(queue, key=key)
        known: set[Any] = self.model.paused if key is None else self.model.paused_keys
        entry = queue if key is None else (queue, key)
        if is_paused:
            known.add(entry)
        else:
            known.discard(entry)

    def purge(self, queue: str) -> None:
        doomed = [message_id for message_id, known in self.model.of(queue).items() if not known.token]
        assert self.broker.purge(queue) == len(doomed)
        for message_id in doomed:
            del self.model.messages[message_id]

    @rule(queue=own_queues)
    def redrive(self, queue: str) -> None:
        dlq = f"{queue}.dlq"
        waiting = {message_id for message_id, known in self.model.of(dlq).items() if not known.token}
        expected = max(0, min(len(waiting), self.model.room(queue)))
        started = self.broker.redrive(dlq)
        self.broker.step()
        self.broker.stop_redrive(started.id)
        there = self.broker.engine.ledger.queues[queue].messages
        moved = {message_id for message_id in waiting if number_of(message_id) in there}
        assert len(moved) == expected
        for message_id in moved:
            known = self.model.messages[message_id]
            known.queue, known.failures, known.due_ms = queue, 0, 0

    # ---------------------------------------------------------------------------------------------------------- time

    @rule(ms=st.sampled_from((0, 1, 50, 100, 700, 31_000)))
    def advance(self, ms: int) -> None:
        self.broker.advance(ms)
        self.model.pass_time(self.broker.clock.now_ms())

    @rule(ms=st.sampled_from((0, 0, 150, 31_000)))
    def reopen(self, ms: int) -> None:
        self.broker.clock.advance(ms)
        self.broker.reopen()
        self.broker.step()
        self.model.pass_time(self.broker.clock.now_ms(), asleep=True)

    # ----------------------------------------------------------------------------------------------------- invariants

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        ledger = self.broker.engine.ledger
        found = {
            (f"{number:016x}", message.queue.name, message.token, message.failures, message.due_ms or 0)
            for queue in ledger.queues.values()
            for number, message in queue.messages.items()
        }
        assert found == {(i, k.queue, k.token, k.failures, k.due_ms) for i, k in self.model.messages.items()}

    @invariant()
    def is_the_fold_of_its_journal(self) -> None:
        store = self.broker.store
        assert isinstance(store, MemoryStore)
        ledger = self.broker.engine.ledger
        copy = store.copy()
        base = copy.recover().base
        found, expected = picture(folded(copy, base, ledger.limits)), picture(ledger)
        assert {part: value for part, value in found.items() if value != expected[part]} == {
            part: value for part, value in expected.items() if value != found[part]
        }

    @invariant()
    def keeps_the_bodies_of_what_lives_and_no_others(self) -> None:
        ledger, store = self.broker.engine.ledger, self.broker.store
        assert isinstance(store, MemoryStore)
        states = {int(known.state[0], 16): known.state[1] for known in self.model.messages.values() if known.state}
        assert set(store._bodies) == set(ledger.chunks) | set(states)
        assert store.bodies(list(states)) == list(states.values())
