"""Handing out: from consumers that wait and messages whose turn it is to leases, and back when a consumer is gone."""

from __future__ import annotations

from fairlane.broker.cycle import Desk, Turn
from fairlane.broker.requests import Attach, Consumer, HandOut, Request, Waiter
from fairlane.broker.views.deliveries import deliveries_of
from fairlane.broker.waiting.dispatcher import Dispatcher
from fairlane.broker.waiting.wait_times import Waits
from fairlane.core.commands import Lease, Nack
from fairlane.errors import FairlaneError, QueueNotFound
from fairlane.model.message import Delivery, Receipt


class HandingOut:
    """Serves the lines of the dispatcher within a turn, and delivers once the turn is durable.

    Attributes:
        unserved: queues whose line the last turn had no room for.
    """

    def __init__(self, dispatcher: Dispatcher, waits: Waits, *, turn_events: int, answer_bytes_max: int) -> None:
        self._dispatcher = dispatcher
        self._waits = waits
        self._turn_events = turn_events
        self._answer_bytes_max = answer_bytes_max
        self.unserved: dict[str, None] = {}

    # ----------------------------------------------------------------------------------------------- coming and going

    def admit(self, desk: Desk, waiter: Waiter, turn: Turn) -> None:
        """Let a waiter join its line, or refuse it."""
        if waiter.queue not in desk.ledger.queues:
            turn.answer(waiter.reply, QueueNotFound(f"There is no queue {waiter.queue!r:.150}."))
            return
        refusal = self._dispatcher.wait(waiter, turn.now_ms)
        if refusal is not None:
            turn.answer(waiter.reply, refusal)

    def attach(self, desk: Desk, asked: Attach, turn: Turn) -> None:
        """Let a consumer begin, or end."""
        consumer = asked.consumer
        if asked.is_closing:
            receipts = self._dispatcher.detach(consumer)
            self._take_back(
                desk, consumer.queue, receipts, {delivery.id for delivery in (*consumer.unseen, *asked.unseen)}, turn
            )
            turn.ended.append(consumer)
            turn.answer(asked.reply, None)
        elif asked.reply.done():
            return  # whoever wanted it to begin is gone, and nobody would end it
        elif consumer.queue not in desk.ledger.queues:
            turn.answer(asked.reply, QueueNotFound(f"There is no queue {consumer.queue!r:.150}."))
        else:
            refusal = self._dispatcher.attach(consumer)
            if refusal is None:
                turn.begun.append(consumer)
            turn.answer(asked.reply, refusal)

    def fail(self, turn: Turn) -> None:
        """Forget the consumers that began in a turn that has failed, and tell those that ended in it that they have."""
        for consumer in turn.begun:
            self._dispatcher.detach(consumer)
        for consumer in turn.ended:
            consumer.deliver([])

    @staticmethod
    def _take_back(desk: Desk, queue: str, receipts: list[Receipt], unseen: set[str], turn: Turn) -> None:
        """Let messages go back that a consumer had in flight: what it never saw is deferred, the rest has failed."""
        if queue not in desk.ledger.queues:
            return
        untouched = [receipt for receipt in receipts if receipt.id in unseen]
        failed = [receipt for receipt in receipts if receipt.id not in unseen]
        if untouched:
            desk.run_command(Nack(queue=queue, receipts=untouched, intent="defer", delay_ms=0), turn)
        if failed:
            error = "The consumer went away."
            desk.run_command(Nack(queue=queue, receipts=failed, reason="release", error=error), turn)

    def dismiss(self, queue: str, turn: Turn) -> None:
        """Send away everybody who waits at a queue that is gone."""
        for taker in self._dispatcher.dismiss(queue):
            if isinstance(taker, Waiter):
                turn.answer(taker.reply, QueueNotFound(f"Queue {queue!r} has been deleted."))
            else:
                self._dispatcher.detach(taker)
                turn.ended.append(taker)

    # --------------------------------------------------------------------------------------------------------- leasing

    def serve(self, desk: Desk, turn: Turn, queues: dict[str, None]) -> None:
        """Lease to whoever waits at these queues, or at any in which something may have become ready."""
        for queue in desk.schedule.touched():
            queues[queue] = None

        def lease_out(taker: Waiter | Consumer) -> HandOut | None:
            return self._lease_out(desk, taker, turn)

        waiting = self._dispatcher.queues()
        interrupted: list[str] = []
        for queue in [name for name in queues if name in waiting]:
            if self._room(turn) <= 0:
                self.unserved[queue] = None
                continue
            turn.hand_outs.extend(self._dispatcher.serve(queue, lease_out))
            if self._room(turn) <= 0:
                interrupted.append(queue)
        self.unserved.update(dict.fromkeys(interrupted))  # after those that have had nothing yet
        for waiter in self._dispatcher.timed_out(turn.now_ms, but_not_at=self.unserved):
            turn.answer(waiter.reply, [])

    def _room(self, turn: Turn) -> int:
        """Return how many messages more the turn may hand out, however much has come in: neither starves the other."""
        return self._turn_events - turn.handed_out

    def _lease_out(self, desk: Desk, taker: Waiter | Consumer, turn: Turn) -> HandOut | None:
        if self._room(turn) <= 0 or not desk.schedule.may_pick(taker.queue):
            return None
        picked = desk.schedule.pick(taker.queue, taker.count, turn.now_ms, size_bytes=self._answer_bytes_max)
        if not picked:
            return None
        self._waits.note(taker.queue, picked, turn.now_ms)
        policy = desk.ledger.queues[taker.queue].policy
        visibility_ms = policy.visibility_timeout_ms if taker.visibility_ms is None else taker.visibility_ms
        numbers = [message.number for message in picked]
        turn.handed_out += len(picked)
        token = desk.ledger.next_sequence
        picking = desk.schedule.last_picking(taker.queue, picked)
        command = Lease(
            queue=taker.queue, numbers=numbers, visibility_ms=visibility_ms, owner=taker.owner, picking=picking
        )
        desk.execute(command, turn)
        return HandOut(taker, picked, token)

    # ------------------------------------------------------------------------------------------------------ delivering

    @staticmethod
    def deliver(desk: Desk, hand_out: HandOut) -> None:
        """Give leased messages to their taker, now that the leases are durable; if it is gone, they go back."""
        taker = hand_out.taker
        is_gone = taker.is_closed if isinstance(taker, Consumer) else taker.reply.done()
        if is_gone:
            command = Nack(queue=taker.queue, receipts=hand_out.receipts(), intent="defer", delay_ms=0)
            desk.submit(Request(command))
            return
        try:
            deliveries = deliveries_of(desk.bodies, hand_out)
        except FairlaneError as error:
            deliveries = _readable(desk, hand_out)
            if not deliveries:
                if isinstance(taker, Waiter):
                    taker.reply.set_exception(error)
                return
        if isinstance(taker, Consumer):
            taker.deliver(deliveries)
        else:
            taker.reply.set_result(deliveries)


def _readable(desk: Desk, hand_out: HandOut) -> list[Delivery]:
    """Return the deliveries that can be read; the others go back, as failed attempts, lest they go round for ever."""
    deliveries: list[Delivery] = []
    for token, message in enumerate(hand_out.messages, hand_out.token):
        single = HandOut(hand_out.taker, [message], token)
        try:
            deliveries.extend(deliveries_of(desk.bodies, single))
        except FairlaneError as error:
            queue = hand_out.taker.queue
            desk.submit(Request(Nack(queue=queue, receipts=single.receipts(), reason="release", error=str(error))))
    return deliveries
