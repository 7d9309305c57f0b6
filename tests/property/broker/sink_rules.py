"""The rules of sinks: staging and publishing, beside a naive model."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from fairlane.errors import FairlaneError
from fairlane.model.message import NewMessage
from fairlane.model.staging import PublishResult, StageResult
from tests.property.broker.claim_rules import ClaimRules
from tests.property.broker.message_rules import batches, own_queues
from tests.property.broker.model import KnownSink
from tests.property.broker.picture import contents

sinks = st.sampled_from(("s1", "s2"))
parts = st.sampled_from(("p0", "p1", "p2"))
numbers = st.integers(0, 3)
offs = st.sampled_from((0, 0, 0, -1, 1))


class SinkRules(ClaimRules):
    """Stages, publishes and drops, and knows the expected result."""

    @rule(
        queue=own_queues, name=sinks, batch=numbers, part=parts, batch_of=batches, off=st.sampled_from((0, 0, 0, -1, 1))
    )
    def stage(self, queue: str, name: str, batch: int, part: str, batch_of: list[NewMessage], off: int) -> None:
        news = [msgspec.structs.replace(message, dedup_id=None, unique_key=None) for message in batch_of]
        sink = self.model.sinks.get((queue, name), KnownSink())
        there = sink.parts.get((batch, part), [])
        at = max(0, len(there) + off)
        refusal = self.why_not_staged(queue, sink, batch, there, at, news)
        if refusal is not None:
            before = contents(self.broker.engine.ledger)
            with pytest.raises(FairlaneError) as caught:
                self.broker.stage(queue, name, batch=batch, part=part, at=at, messages=news)
            assert caught.value.code == refusal
            assert contents(self.broker.engine.ledger) == before
            return
        staged = self.broker.stage(queue, name, batch=batch, part=part, at=at, messages=news)
        assert staged == StageResult(count=at + len(news))
        if batch > sink.batch and at + len(news) > len(there):
            sink.parts.setdefault((batch, part), []).extend(news)
            sink.heard_ms = self.model.now_ms
            self.model.sinks[queue, name] = sink

    def why_not_staged(
        self, queue: str, sink: KnownSink, batch: int, there: list[NewMessage], at: int, news: list[NewMessage]
    ) -> str | None:
        if batch <= sink.batch or at + len(news) <= len(there):
            return None
        if at != len(there):
            return "stage_mismatch"
        if any(one.weight == 0 or one.fairness_key == "" or one.cost == 10**9 for one in news):
            return "invalid_argument"
        return "queue_full" if self.model.room(queue) < len(news) else None

    @rule(queue=own_queues, name=sinks, ahead=st.integers(1, 2), is_published=st.booleans())
    def stage_two_parts(self, queue: str, name: str, ahead: int, is_published: bool) -> None:
        batch = self.model.sinks.get((queue, name), KnownSink()).batch + ahead
        for part in ("p0", "p1"):
            self.stage(queue, name, batch, part, [NewMessage(fairness_key="x")], 0)
        if is_published:
            self.publish(queue, name, batch, ["p1"])

    @rule(queue=own_queues, name=sinks, batch=numbers, named=st.lists(parts, unique=True, max_size=3))
    def publish(self, queue: str, name: str, batch: int, named: list[str]) -> None:
        sink = self.model.sinks.get((queue, name), KnownSink())
        if batch <= sink.batch:
            count = sink.count if batch == sink.batch else 0
            assert self.broker.publish(queue, name, batch=batch, parts=named) == PublishResult(
                count=count, was_published=True
            )
            return
        if any((batch, part) not in sink.parts for part in named):
            with pytest.raises(FairlaneError) as caught:
                self.broker.publish(queue, name, batch=batch, parts=named)
            assert caught.value.code == "stage_mismatch"
            return
        self.really_publish(queue, name, sink, batch, named)

    def really_publish(self, queue: str, name: str, sink: KnownSink, batch: int, named: list[str]) -> None:
        known = self.broker.engine.ledger.queues[queue]
        held, id_of = known.sinks.get(name), known.ids.id_of
        ids = [id_of(number) for part in named if held for number in held.parts[batch, part].numbers()]
        news = [message for part in named for message in sink.parts[batch, part]]
        published = self.broker.publish(queue, name, batch=batch, parts=named)
        assert published == PublishResult(count=len(news), was_published=False)
        sink.batch, sink.count, sink.heard_ms = batch, len(news), self.model.now_ms
        sink.parts = {place: part for place, part in sink.parts.items() if place[0] > batch}
        self.model.sinks[queue, name] = sink
        for message, message_id in zip(news, ids, strict=True):
            self.take_in(queue, message, message_id)

    @rule(queue=own_queues, name=sinks)
    def drop_sink(self, queue: str, name: str) -> None:
        sink = self.model.sinks.pop((queue, name), None)
        if sink is None:
            with pytest.raises(FairlaneError) as caught:
                self.broker.drop_sink(queue, name)
            assert caught.value.code == "sink_not_found"
        else:
            assert self.broker.drop_sink(queue, name) == sum(map(len, sink.parts.values()))

    @rule()
    def let_a_week_pass(self) -> None:
        self.broker.advance(7 * 24 * 3600 * 1000)
        self.model.pass_time(self.broker.clock.now_ms())
