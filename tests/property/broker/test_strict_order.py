"""Strict order under random failures, expiries and restarts, against a list of each key's messages."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.errors import LeaseMismatch, MessageNotFound, OutOfOrder
from fairlane.model.message import Delivery, NewMessage
from fairlane.testing.stepped import SteppedBroker

Group = tuple[str, str | None]
VISIBILITY_MS = 1_000
BACKOFF_MS = 300
DELAYS_MS = (0, 0, 0, 400)

groups = st.tuples(st.sampled_from("abc"), st.sampled_from([None, None, "x"]))
places = st.lists(st.integers(0, 30), min_size=1, max_size=4)
steps = st.one_of(
    st.tuples(st.just("enqueue"), st.lists(st.tuples(groups, st.sampled_from(DELAYS_MS)), min_size=1, max_size=5)),
    st.tuples(st.just("lease"), st.integers(1, 6)),
    st.tuples(st.just("ack"), places),
    st.tuples(st.just("nack"), places),
    st.tuples(st.just("defer"), places),
    st.tuples(st.just("dead"), places),
    st.tuples(st.just("wait"), st.sampled_from([1, BACKOFF_MS, VISIBILITY_MS])),
    st.tuples(st.just("crash"), st.none()),
)


class Keys:
    """What each key should have: its messages that are not done, in order, and which of them are leased."""

    def __init__(self, batch_max: int) -> None:
        self.batch_max = batch_max
        self.broker = SteppedBroker()
        policy = {"order": "strict", "order_batch_max": batch_max, "visibility_timeout_ms": VISIBILITY_MS}
        self.broker.create_queue("q", policy | {"backoff_ms": BACKOFF_MS, "backoff_jitter": 0, "max_attempts": 3})
        self.lines: dict[Group, list[str]] = {}
        self.due_ms: dict[str, int] = {}
        self.held: list[Delivery] = []
        self.seen: list[Delivery] = []
        self.acked = 0

    def _group(self, delivery: Delivery) -> Group:
        return str(delivery.fairness_key), delivery.order_key

    def enqueue(self, drawn: list[tuple[Group, int]]) -> None:
        news = [NewMessage(fairness_key=key, order_key=order, delay_ms=delay) for (key, order), delay in drawn]
        for (group, delay_ms), message_id in zip(drawn, self.broker.enqueue_many("q", news), strict=True):
            assert isinstance(message_id, str)
            self.lines.setdefault(group, []).append(message_id)
            self.due_ms[message_id] = self.broker.clock.now_ms() + delay_ms

    def lease(self, count: int) -> None:
        """Lease, and check that every key gives its first messages, and only if none of them is out."""
        self._forget_expired()
        out = {self._group(delivery) for delivery in self.held}
        now_ms = self.broker.clock.now_ms()
        ready = [g for g, line in self.lines.items() if line and g not in out and self.due_ms[line[0]] <= now_ms]
        got = self.broker.lease("q", count)
        taken: dict[Group, list[str]] = {}
        for delivery in got:
            taken.setdefault(self._group(delivery), []).append(delivery.id)
        for group, ids in taken.items():
            assert group not in out
            assert ids == self.lines[group][: len(ids)]
            assert len(ids) <= self.batch_max
            assert all(self.due_ms[each] <= now_ms for each in ids)
        if len(got) < count:  # no key waits for another one
            assert set(taken) == set(ready)
        self.held += got
        self.seen += got

    def settle(self, verb: str, drawn: list[int]) -> None:
        """Settle leases, old ones among them, each in a call of its own."""
        for place in drawn:
            if self.seen:
                self._settle(verb, self.seen[place % len(self.seen)])

    def _settle(self, verb: str, delivery: Delivery) -> None:
        self._forget_expired()
        line, is_held = self.lines.get(self._group(delivery), []), delivery in self.held
        try:
            if verb == "ack":
                self.broker.ack(delivery)
            else:
                intent: Any = "failure" if verb == "nack" else verb
                self.broker.nack(delivery, intent=intent)
        except OutOfOrder:
            assert is_held
            assert line[0] != delivery.id
            return
        except (LeaseMismatch, MessageNotFound):
            assert not is_held
            return
        assert is_held
        self.held.remove(delivery)
        if verb == "ack":
            assert line[0] == delivery.id
            self.acked += 1
        if verb in ("ack", "dead") or (verb == "nack" and delivery.failures == 2):
            line.remove(delivery.id)
            return
        self.due_ms[delivery.id] = self.broker.clock.now_ms()
        if verb == "nack":
            self.due_ms[delivery.id] += BACKOFF_MS * 2**delivery.failures
        self._take_back_behind(delivery)

    def _take_back_behind(self, first: Delivery) -> None:
        line = self.lines[self._group(first)]
        behind = line[line.index(first.id) :]
        self.held = [delivery for delivery in self.held if delivery.id not in behind]

    def _forget_expired(self) -> None:
        for delivery in [one for one in self.held if one.expires_ms <= self.broker.clock.now_ms()]:
            self._take_back_behind(delivery)

    def drain(self) -> None:
        """Lease and acknowledge everything, in order, until nothing is left."""
        while any(self.lines.values()):
            self.lease(10)
            for delivery in list(self.held):
                if delivery in self.held:
                    self._settle("ack", delivery)
            self.broker.advance(BACKOFF_MS)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([1, 3]), st.lists(steps, max_size=40))
def test_the_messages_of_a_key_are_acknowledged_in_order_and_other_keys_are_not_delayed(
    batch_max: int, drawn: list[tuple[str, Any]]
) -> None:
    """Whatever fails, expires or restarts, each accepted ack is that of a key's first message, and whenever a lease is
    not filled, every key whose first message is due and not out has given one."""
    keys = Keys(batch_max)
    for verb, value in drawn:
        match verb:
            case "enqueue":
                keys.enqueue(value)
            case "lease":
                keys.lease(value)
            case "wait":
                keys.broker.advance(value)
            case "crash":
                keys.broker.reopen()
            case _:
                keys.settle(verb, value)
    keys.drain()
