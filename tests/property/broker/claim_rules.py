"""The rules of registered consumers and their claims, beside a naive model."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from fairlane.errors import FairlaneError
from fairlane.model.message import NEVER_MS, NewMessage
from tests.property.broker.message_rules import MessageRules, own_queues, queues
from tests.property.broker.model import KnownConsumer
from tests.property.broker.picture import contents

names = st.sampled_from(("c1", "c2"))


class ClaimRules(MessageRules):
    """Registers, claims, reads and releases, and knows the expected result."""

    @rule(queue=queues, name=names, idle_ms=st.sampled_from((None, None, 500, 40_000)))
    def register(self, queue: str, name: str, idle_ms: int | None) -> None:
        view = self.broker.register_consumer(queue, name, idle_ms=idle_ms)
        known = self.model.consumers.setdefault((queue, name), KnownConsumer(0, None, 0))
        assert view.epoch > self.model.last_epoch
        assert (view.claimed, view.done) == (known.claimed, known.done)
        assert view.open_messages == len(self.model.held_under(known))
        known.epoch = self.model.last_epoch = view.epoch
        known.idle_ms, known.heard_ms = idle_ms, self.model.now_ms

    def consumer(self, data: st.DataObject) -> tuple[str, str, KnownConsumer] | None:
        if not self.model.consumers:
            return None
        queue, name = data.draw(st.sampled_from(sorted(self.model.consumers)))
        return queue, name, self.model.consumers[queue, name]

    @rule(data=st.data(), count=st.integers(1, 6), is_done=st.booleans())
    def claim(self, data: st.DataObject, count: int, is_done: bool) -> None:
        found = self.consumer(data)
        if found is None:
            return
        self.claim_for(*found, count=count, is_done=is_done)

    @rule(queue=queues, name=names, idle_ms=st.sampled_from((None, 500)), count=st.integers(1, 6))
    def register_and_claim(self, queue: str, name: str, idle_ms: int | None, count: int) -> None:
        if not queue.endswith(".dlq"):
            self.enqueue(queue, [NewMessage(fairness_key="x"), NewMessage(fairness_key="y")])
        self.register(queue, name, idle_ms)
        self.claim_for(queue, name, self.model.consumers[queue, name], count=count, is_done=True)

    @rule(queue=own_queues, name=names, ms=st.sampled_from((499, 500)))
    def claim_and_fall_silent(self, queue: str, name: str, ms: int) -> None:
        self.register_and_claim(queue, name, 500, 6)
        self.broker.advance(ms)
        self.model.pass_time(self.broker.clock.now_ms())

    def claim_for(self, queue: str, name: str, known: KnownConsumer, *, count: int, is_done: bool) -> None:
        known.heard_ms = self.model.now_ms
        done = known.claimed if is_done else known.done
        if known.claim is not None and is_done:
            for message_id in self.model.held_under(known):
                del self.model.messages[message_id]
            self.model.end_claim(known)
        eligible = self.model.eligible(queue)
        claim = self.broker.claim(queue, name, epoch=known.epoch, done=done, count=count)
        if known.claim is not None:
            assert (claim.number, claim.count) == (known.claimed, len(known.claim))
        elif not eligible:
            assert (claim.number, claim.count) == (done, 0)
        else:
            assert (claim.number, claim.count) == (known.claimed + 1, min(count, len(eligible)))
            self.take_claim(queue, name, known, eligible)

    def take_claim(self, queue: str, name: str, known: KnownConsumer, eligible: set[str]) -> None:
        known.claimed += 1
        known.claim = []
        for delivery in self.broker.read_claim(queue, name, claim=known.claimed).deliveries:
            assert delivery.id in eligible
            assert delivery.expires_ms == NEVER_MS
            self.model.lease(delivery)
            self.tokens.append(delivery.token)
            known.claim.append((delivery.id, delivery.token))

    @rule(data=st.data(), start=st.integers(0, 5), count=st.integers(1, 6))
    def read_claim(self, data: st.DataObject, start: int, count: int) -> None:
        found = self.consumer(data)
        if found is None:
            return
        queue, name, known = found
        known.heard_ms = self.model.now_ms
        if known.claim is None:
            with pytest.raises(FairlaneError) as caught:
                self.broker.read_claim(queue, name, claim=known.claimed)
            assert caught.value.code == "claim_not_found"
            return
        slice_ = self.broker.read_claim(queue, name, claim=known.claimed, start=start, count=count)
        held = set(self.model.held_under(known))
        expected = [place for place in known.claim[start : start + count] if place[0] in held]
        assert [(one.id, one.token) for one in slice_.deliveries] == expected
        assert slice_.total == len(known.claim)

    @rule(data=st.data())
    def claim_with_an_old_epoch(self, data: st.DataObject) -> None:
        found = self.consumer(data)
        if found is None:
            return
        queue, name, known = found
        known.heard_ms = self.model.now_ms
        before = contents(self.broker.engine.ledger)
        with pytest.raises(FairlaneError) as caught:
            self.broker.claim(queue, name, epoch=known.epoch - 1, done=known.claimed)
        assert caught.value.code == "consumer_fenced"
        assert contents(self.broker.engine.ledger) == before

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        found = self.consumer(data)
        if found is None:
            return
        queue, name, known = found
        assert self.broker.release_consumer(queue, name) == len(self.model.held_under(known))
        self.model.give_back_claim(known, self.model.now_ms)
        del self.model.consumers[queue, name]
        self.model.meet_deadlines()
