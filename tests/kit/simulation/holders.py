"""What the simulation's consumers do with leases that they hold, and with stale ones."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.errors import FairlaneError
from fairlane.model.message import Delivery, FailureDetail, NewMessage
from fairlane.verbs.leases import Ack, Extend, Forward, Nack, SetState
from fairlane.verbs.methods.conversions import receipt_of, receipts_of
from tests.kit.auditor.books import LeaseNote, violated
from tests.kit.ids import numbered
from tests.kit.simulation.answers import Holding
from tests.kit.simulation.clients import Clients

_STALE_MAX = 60


class Holders(Clients):
    """Clients that settle leases, in time and late."""

    def _some(self) -> tuple[str, list[Holding]]:
        """Return some of the leases held on one queue."""
        draw = self.world.workload
        queue = draw.chance.choice(self.held).delivery.queue
        mine = [holding for holding in self.held if holding.delivery.queue == queue]
        return queue, draw.chance.sample(mine, min(len(mine), draw.one_of(1, 1, 2, 6)))

    def _let_go(self, holdings: list[Holding]) -> None:
        for holding in holdings:
            self.held.remove(holding)
            self.stale.append(holding)
        del self.stale[:-_STALE_MAX]

    def ack(self) -> None:
        """Acknowledge some messages, sometimes with their true costs."""
        if self.held:
            queue, holdings = self._some()
            self._let_go(holdings)
            self._ack(queue, [holding.delivery for holding in holdings])

    def _ack(self, queue: str, deliveries: list[Delivery]) -> None:
        draw = self.world.workload
        costs = [draw.one_of(None, 0, 1, 20) for _ in deliveries] if draw.happens(0.3) else None
        results = [draw.one_of(None, b"r%d" % delivery.token) for delivery in deliveries] if draw.happens(0.5) else None
        request = Ack(queue=queue, receipts=receipts_of(deliveries, costs, results))

        def judge(outcome: Any) -> None:
            self.world.auditor.told_ended(deliveries, outcome, self.world.now_ms(), "acked")
            self.world.auditor.told_acked(deliveries, results, outcome)

        self.do(f"ack {_ids(deliveries)} of {queue}", request, judge)

    def ack_and_forward(self) -> None:
        """Acknowledge a message and enqueue others in the same commit."""
        if not self.held:
            return
        queue, holdings = self._some()
        self._let_go(holdings[:1])
        deliveries = [holding.delivery for holding in holdings[:1]]
        auditor, draw = self.world.auditor, self.world.workload
        targets = {self._queue(): draw.messages() for _ in range(draw.one_of(1, 1, 2))}
        heirs = {target: [_heir(message, deliveries[0]) for message in news] for target, news in targets.items()}
        for target, messages in heirs.items():
            for message in messages:
                auditor.note_sent(target, message)

        def judge(outcome: Any) -> None:
            if isinstance(outcome, FairlaneError):
                return
            auditor.told_ended(deliveries, [None] * len(deliveries), self.world.now_ms(), "acked")
            ids = iter(outcome)
            for target, messages in heirs.items():
                auditor.told_enqueued(target, messages, [next(ids) for _ in messages])

        label = f"ack {_ids(deliveries)} of {queue}, forward to {list(targets)}"
        self.do(label, Forward(queue=queue, receipt=receipt_of(deliveries[0]), messages=targets), judge)

    def nack(self) -> None:
        """Return some messages."""
        if self.held:
            queue, holdings = self._some()
            self._let_go(holdings)
            self._nack(queue, [holding.delivery for holding in holdings])

    def _nack(self, queue: str, deliveries: list[Delivery]) -> None:
        draw, auditor = self.world.workload, self.world.auditor
        intent = draw.one_of("failure", "failure", "defer", "dead")
        delay_ms = draw.one_of(None, None, 0, draw.span_ms())
        error = "" if intent == "defer" else draw.one_of("", "boom", "no route " * 3)
        how = {
            "failure": ("returned:failure", "dead:max", "dead:hook"),
            "defer": ("returned:defer",),
            "dead": ("dead:requested",),
        }
        expected = how[intent] if not (queue.endswith(".dlq") and intent == "dead") else ("returned:failure",)

        def judge(outcome: Any) -> None:
            auditor.told_ended(deliveries, outcome, self.world.now_ms(), *expected)
            for delivery, result in zip(deliveries, outcome if isinstance(outcome, list) else (), strict=False):
                note = auditor.books.leases[delivery.token]
                due_ms = note.ended_ms + delay_ms if delay_ms else None
                if not isinstance(result, FairlaneError) and result not in _fates(note):
                    violated(f"{delivery.id} was said to be {result}; its lease is {note}")
                if (
                    not isinstance(result, FairlaneError)
                    and note.ended.startswith("returned")
                    and delay_ms is not None
                    and (intent == "defer" or not auditor.has_hook(queue))
                    and note.due_ms != due_ms
                ):
                    violated(
                        f"{delivery.id} was to wait {delay_ms} ms from {note.ended_ms}, and waits to {note.due_ms}"
                    )

        detail = FailureDetail(traceback="line 1", worker="w1") if error and draw.happens(0.3) else None
        receipts = receipts_of(deliveries)
        request = Nack(queue=queue, receipts=receipts, intent=intent, delay_ms=delay_ms, error=error, detail=detail)
        self.do(f"nack {_ids(deliveries)} of {queue} as {intent}, delay {delay_ms}", request, judge)

    def extend(self) -> None:
        """Extend the leases of some messages."""
        if self.held:
            queue, holdings = self._some()
            self._extend(queue, [holding.delivery for holding in holdings])

    def _extend(self, queue: str, deliveries: list[Delivery]) -> None:
        span_ms = self.world.workload.one_of(None, self.world.workload.span_ms(60_000))
        request = Extend(queue=queue, receipts=receipts_of(deliveries), visibility_ms=span_ms)

        def judge(outcome: Any) -> None:
            self.world.auditor.told_extended(deliveries, outcome, self.world.now_ms())

        self.do(f"extend {_ids(deliveries)} of {queue} by {span_ms}", request, judge)

    def set_state(self) -> None:
        """Write workflow state."""
        if self.held:
            self._set_state(self.world.workload.chance.choice(self.held))

    def _set_state(self, holding: Holding) -> None:
        draw, delivery = self.world.workload, holding.delivery
        etag = "0" * 16 if draw.happens(0.1) else holding.etag
        state = draw.one_of(None, b"s%d" % draw.chance.randint(0, 10**9), b"s%d" % draw.chance.randint(0, 10**9))

        def judge(outcome: Any) -> None:
            self.world.auditor.told_state(delivery, state, etag, outcome, self.world.now_ms())
            if outcome is None or isinstance(outcome, str):
                holding.etag = outcome

        request = SetState(queue=delivery.queue, receipt=receipt_of(delivery), state=state, etag=etag)
        self.do(f"state of {_ids([delivery])} of {delivery.queue} with etag {etag}", request, judge)

    def use_stale(self) -> None:
        """Use a stale lease, as a slow consumer does."""
        if not self.stale:
            return
        holding = self.world.workload.chance.choice(self.stale)
        queue, deliveries = holding.delivery.queue, [holding.delivery]
        self.world.note("  late:")
        self.world.workload.one_of(
            lambda: self._ack(queue, deliveries),
            lambda: self._nack(queue, deliveries),
            lambda: self._extend(queue, deliveries),
            lambda: self._set_state(holding),
        )()

    def finish(self, holding: Holding) -> None:
        """Acknowledge one message."""
        self._let_go([holding])
        self._ack(holding.delivery.queue, [holding.delivery])


def _ids(deliveries: list[Delivery]) -> str:
    return ", ".join(f"{numbered(delivery.id)}/{delivery.token}" for delivery in deliveries)


def _fates(note: LeaseNote) -> tuple[str, ...]:
    """Return what a broker may say that became of a returned message."""
    if note.ended.startswith("dead"):
        return ("dead",)
    return ("delayed" if (note.due_ms or 0) > note.ended_ms else "waiting", "expired")


def _heir(message: NewMessage, delivery: Delivery) -> NewMessage:
    """Return a forwarded message as it should be enqueued: it takes what it lacks from the acknowledged one."""
    fields = {"fairness_key": delivery.fairness_key, "correlation_id": delivery.correlation_id}
    return msgspec.structs.replace(
        message, **{name: value for name, value in fields.items() if getattr(message, name) is None}
    )
