"""Handing out: from consumers that wait and messages whose cycle it is to leases, and back when a consumer is gone."""

from __future__ import annotations

from typing import Final

from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Attach, Call, Consumer, HandOut, Waiter
from fairlane.broker.views.deliveries import deliveries_of
from fairlane.broker.waiting.dispatcher import Dispatcher
from fairlane.broker.waiting.wait_times import Waits
from fairlane.core.commands import Given, LeasePicked
from fairlane.errors import FairlaneError, QueueNotFound
from fairlane.model.message import Delivery, Receipt
from fairlane.verbs.leases import LeasedMessages, Nack

NO_MESSAGES: Final = LeasedMessages(deliveries=[])
_RELEASED: Final = Given(reason="release")


class HandingOut:
    """Serves the lines of the dispatcher within a cycle, and delivers once the cycle is durable.

    Attributes:
        unserved: queues whose line the last cycle had no room for.
    """

    def __init__(self, dispatcher: Dispatcher, waits: Waits, *, cycle_events_max: int, answer_bytes_max: int) -> None:
        self._dispatcher = dispatcher
        self._waits = waits
        self._cycle_events_max = cycle_events_max
        self._answer_bytes_max = answer_bytes_max
        self.unserved: dict[str, None] = {}

    # ----------------------------------------------------------------------------------------------- coming and going

    def admit(self, executor: Executor, waiter: Waiter, cycle: Cycle) -> None:
        """Let a waiter join its line, or refuse it."""
        if waiter.queue not in executor.ledger.queues:
            cycle.answer(waiter.reply, QueueNotFound(f"There is no queue {waiter.queue!r:.150}."))
            return
        refusal = self._dispatcher.wait(waiter, cycle.now_ms)
        if refusal is not None:
            cycle.answer(waiter.reply, refusal)

    def attach(self, executor: Executor, asked: Attach, cycle: Cycle) -> None:
        """Let a consumer begin, or end."""
        consumer = asked.consumer
        if asked.is_closing:
            receipts = self._dispatcher.detach(consumer)
            self._take_back(
                executor,
                consumer.queue,
                receipts,
                {delivery.id for delivery in (*consumer.unseen, *asked.unseen)},
                cycle,
            )
            cycle.ended.append(consumer)
            cycle.answer(asked.reply, None)
        elif asked.reply.done():
            return  # whoever wanted it to begin is gone, and nobody would end it
        elif consumer.queue not in executor.ledger.queues:
            cycle.answer(asked.reply, QueueNotFound(f"There is no queue {consumer.queue!r:.150}."))
        else:
            refusal = self._dispatcher.attach(consumer)
            if refusal is None:
                cycle.begun.append(consumer)
            cycle.answer(asked.reply, refusal)

    def fail(self, cycle: Cycle) -> None:
        """Forget the consumers that began in a failed cycle, and tell those that ended in it that they have."""
        for consumer in cycle.begun:
            self._dispatcher.detach(consumer)
        for consumer in cycle.ended:
            consumer.deliver([])

    @staticmethod
    def _take_back(executor: Executor, queue: str, receipts: list[Receipt], unseen: set[str], cycle: Cycle) -> None:
        """Let messages go back that a consumer had in flight: what it never saw is deferred, the rest has failed."""
        if queue not in executor.ledger.queues:
            return
        untouched = [receipt for receipt in receipts if receipt.id in unseen]
        failed = [receipt for receipt in receipts if receipt.id not in unseen]
        if untouched:
            executor.run_command(Call(Nack(queue=queue, receipts=untouched, intent="defer", delay_ms=0)), cycle)
        if failed:
            request = Nack(queue=queue, receipts=failed, error="The consumer went away.")
            executor.run_command(Call(request, given=_RELEASED), cycle)

    def dismiss(self, queue: str, cycle: Cycle) -> None:
        """Send away everybody who waits at a queue that is gone."""
        for taker in self._dispatcher.dismiss(queue):
            if isinstance(taker, Waiter):
                cycle.answer(taker.reply, QueueNotFound(f"Queue {queue!r} has been deleted."))
            else:
                self._dispatcher.detach(taker)
                cycle.ended.append(taker)

    # --------------------------------------------------------------------------------------------------------- leasing

    def serve(self, executor: Executor, cycle: Cycle, queues: dict[str, None]) -> None:
        """Lease to whoever waits at these queues, or at any in which something may have become ready."""
        for queue in executor.schedule.touched():
            queues[queue] = None

        def lease_out(taker: Waiter | Consumer) -> HandOut | None:
            return self._lease_out(executor, taker, cycle)

        waiting = self._dispatcher.queues()
        interrupted: list[str] = []
        for queue in [name for name in queues if name in waiting]:
            if self._room(cycle) <= 0:
                self.unserved[queue] = None
                continue
            cycle.hand_outs.extend(self._dispatcher.serve(queue, lease_out))
            if self._room(cycle) <= 0:
                interrupted.append(queue)
        self.unserved.update(dict.fromkeys(interrupted))  # after those that have had nothing yet
        for waiter in self._dispatcher.timed_out(cycle.now_ms, but_not_at=self.unserved):
            cycle.answer(waiter.reply, NO_MESSAGES)

    def _room(self, cycle: Cycle) -> int:
        """Return how many messages more the cycle may hand out, however much has come in: neither starves the other."""
        return self._cycle_events_max - cycle.handed_out

    def _lease_out(self, executor: Executor, taker: Waiter | Consumer, cycle: Cycle) -> HandOut | None:
        if self._room(cycle) <= 0 or not executor.schedule.may_pick(taker.queue):
            return None
        picked = executor.schedule.pick(taker.queue, taker.count, cycle.now_ms, size_bytes=self._answer_bytes_max)
        if not picked:
            return None
        self._waits.note(taker.queue, picked, cycle.now_ms)
        policy = executor.ledger.queues[taker.queue].policy
        visibility_ms = policy.visibility_timeout_ms if taker.visibility_ms is None else taker.visibility_ms
        numbers = [message.number for message in picked]
        cycle.handed_out += len(picked)
        token = executor.ledger.next_sequence
        picking = executor.schedule.last_picking(taker.queue, picked)
        command = LeasePicked(
            queue=taker.queue, numbers=numbers, visibility_ms=visibility_ms, owner=taker.owner, picking=picking
        )
        executor.execute(command, cycle)
        return HandOut(taker, picked, token)

    # ------------------------------------------------------------------------------------------------------ delivering

    @staticmethod
    def deliver(executor: Executor, hand_out: HandOut) -> None:
        """Give leased messages to their taker, now that the leases are durable; if it is gone, they go back."""
        taker = hand_out.taker
        is_gone = taker.is_closed if isinstance(taker, Consumer) else taker.reply.done()
        if is_gone:
            request = Nack(queue=taker.queue, receipts=hand_out.receipts(), intent="defer", delay_ms=0)
            executor.submit(Call(request))
            return
        try:
            deliveries = deliveries_of(executor.bodies, hand_out)
        except FairlaneError as error:
            deliveries = _readable(executor, hand_out)
            if not deliveries:
                if isinstance(taker, Waiter):
                    taker.reply.set_exception(error)
                return
        if isinstance(taker, Consumer):
            taker.deliver(deliveries)
        else:
            taker.reply.set_result(LeasedMessages(deliveries=deliveries))


def _readable(executor: Executor, hand_out: HandOut) -> list[Delivery]:
    """Return the deliveries that can be read; the others go back, as failed attempts, lest they go round for ever."""
    deliveries: list[Delivery] = []
    for token, message in enumerate(hand_out.messages, hand_out.token):
        single = HandOut(hand_out.taker, [message], token)
        try:
            deliveries.extend(deliveries_of(executor.bodies, single))
        except FairlaneError as error:
            request = Nack(queue=hand_out.taker.queue, receipts=single.receipts(), error=str(error))
            executor.submit(Call(request, given=_RELEASED))
    return deliveries
