"""A state machine over the broker's verbs, with illegal ones, reopenings and time, beside a naive model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from fairlane.adapters.memory.store import MemoryStore
from fairlane.broker.inspection import needed_bodies
from fairlane.core.decide import decide
from fairlane.errors import FairlaneError
from fairlane.model.message import Delivery, NewMessage, Receipt
from tests.kit.ids import numbered
from tests.property.broker.drawn_commands import commands_about
from tests.property.broker.message_rules import own_queues, queues, unleased
from tests.property.broker.picture import contents, folded, picture
from tests.property.broker.sink_rules import SinkRules


class BrokerMachine(SinkRules):
    """Makes illegal requests, administers queues, advances time, and checks everything after each step."""

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
        with pytest.raises(FairlaneError) as caught:
            self.ask(verb, unleased(queue, message_id, token))
        assert caught.value.code == ("lease_mismatch" if is_here else self.model.missing(message_id))
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
        command, given = data.draw(commands_about(ledger, queue))
        before, asked = picture(ledger), repr(command)
        decisions = [repr(decide(ledger, command, now_ms, given)) for _ in range(2)]
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
                assert result.code == ("lease_mismatch" if is_here else self.model.missing(receipt.id))
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
        moved = {message_id for message_id in waiting if numbered(message_id) in there}
        assert len(moved) == expected
        for message_id in moved:
            known = self.model.messages[message_id]
            known.queue, known.failures, known.expiries, known.due_ms = queue, 0, 0, 0

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
            (number, message.queue.name, message.token, message.failures, message.due_ms or 0)
            for queue in ledger.queues.values()
            for number, message in queue.messages.items()
        }
        model = self.model.messages.items()
        assert found == {(numbered(i), k.queue, k.token, k.failures, k.due_ms) for i, k in model}

    @invariant()
    def stages_what_the_model_stages(self) -> None:
        queues = self.broker.engine.ledger.queues
        found = {
            (queue.name, sink.name): (sink.batch, {place: part.count for place, part in sink.parts.items()})
            for queue in queues.values()
            for sink in queue.sinks.values()
        }
        assert found == {
            entry: (None if sink.batch < 0 else sink.batch, {place: len(part) for place, part in sink.parts.items()})
            for entry, sink in self.model.sinks.items()
        }
        assert {name: len(queue.staged) for name, queue in queues.items()} == {
            name: self.model.staged(name) for name in queues
        }

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
        assert set(store._bodies) == set(needed_bodies(ledger))
        assert store.bodies(list(states)) == list(states.values())
