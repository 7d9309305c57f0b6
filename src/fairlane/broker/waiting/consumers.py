"""Consumers: who waits for messages, who holds which, and how a message gets from its queue to a consumer.

Consumers wait here without polling, in each queue first come, first served. A *waiter* waits once, until it gets
something or its patience ends; a *consumer* stays, and has up to ``credit`` messages in flight. Both stand in the same
line of their queue.

Which message goes next is the schedule's decision and is made when a consumer can take one, never before: so what a
consumer is given is always what is next by fairness at that instant. Within a cycle ``serve`` picks and leases; the
leases are records like all others. After the commit is durable ``deliver`` reads the bodies and hands them over. A
consumer that left in between never saw its messages, so they go back without counting as an attempt.

A consumer that says how many handlers it has gets plain messages ahead of them, up to its credit. While the schedule
has a *prompt* message, one with a deadline or a throttle or of a key with a cap, a consumer gets only what it has free
handlers for: plain messages stay behind the prompt one, or they would keep the handlers busy and starve it. So a
message that a throttle has let through starts then, and not when a buffer comes to it.

Credit is freed by the record that takes a message from its consumer; if the cycle fails, ``restore`` takes it back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from fairlane.broker.auto_create import still_missing
from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Attach, AttachedConsumer, HandOut, Waiter
from fairlane.broker.settings import Settings
from fairlane.broker.waiting.returns import take_back
from fairlane.broker.waiting.revocations import Revocations
from fairlane.broker.waiting.room import Room
from fairlane.broker.waiting.wait_times import KeyWaitTimes
from fairlane.core.commands import LeasePicked
from fairlane.core.decide.room import RETRY_AFTER_MS
from fairlane.core.schedule import Schedule
from fairlane.errors import QueueNotFound, TooManyWaiters
from fairlane.journal.records import Acked, AnyRecord, Dead, Removed, Returned
from fairlane.model.message import Receipt
from fairlane.scheduler.timers import Timers
from fairlane.verbs.leases import LeasedMessages

ENDS = (Acked, Returned, Dead, Removed)
"""The records after which a consumer no longer holds a message."""
_SWEEP_FROM = 16

NO_MESSAGES: Final = LeasedMessages(deliveries=[])


class WaitingConsumers:
    """The lines of all queues, and what attached consumers hold.

    Attributes:
        lines: who waits at each queue, the first in front; entries of waiters that gave up are skipped when reached.
        attached: the consumers that stay, by queue, whether they wait or have all the messages they may hold.
        holders: which attached consumer holds a message.
        limits: when the patience of a waiter ends.
        freed: the credit that the present cycle has freed: consumer, message and fencing token.
        revocations: the messages that were cancelled in the present cycle while an attached consumer had them.
        unserved: the queues whose lines the last cycle had no capacity to serve.
        on_unserved: called when a queue is to be served that no request touched.
    """

    def __init__(self, settings: Settings) -> None:
        self._waiters_max = settings.waiters_max
        self._cycle_events_max = settings.cycle_events_max
        self._answer_bytes_max = settings.answer_bytes_max
        # Messages up to this size can't fill a cycle by their bytes before they fill it by their number.
        self._large_bytes = settings.answer_bytes_max // settings.cycle_events_max
        self.lines: dict[str, deque[Waiter | AttachedConsumer]] = {}
        self.attached: dict[str, list[AttachedConsumer]] = {}
        self.holders: dict[int, AttachedConsumer] = {}
        self.limits: Timers[Waiter] = Timers(lambda at_ms, waiter: not waiter.is_over and waiter.until_ms == at_ms)
        self.unserved: dict[str, None] = {}
        self.wait_times = KeyWaitTimes()
        self.on_unserved: Callable[[], None] = lambda: None
        self._rooms: list[Room] = []  # of which the last cycle took
        self._waiting = 0
        self._polls: list[Waiter] = []  # they wait for this cycle only, so they need no timer
        self._ended: dict[str, int] = {}
        self.freed: list[tuple[AttachedConsumer, int, int]] = []
        self.revocations = Revocations()

    # ------------------------------------------------------------------------------------------------- coming and going

    def admit(self, executor: Executor, waiter: Waiter, cycle: Cycle) -> None:
        """Add a waiter to the line of its queue, or refuse it."""
        queues = executor.ledger.queues
        if waiter.queue not in queues and (absent := still_missing(executor, waiter.queue, cycle)) is not None:
            cycle.answer(waiter.reply, absent)
        elif waiter.wait_ms and self._waiting >= self._waiters_max and (refusal := self._refusal()) is not None:
            cycle.answer(waiter.reply, refusal)
        else:
            self._waiting += 1
            waiter.until_ms = cycle.now_ms + waiter.wait_ms
            if waiter.wait_ms:
                self.limits.push(waiter.until_ms, waiter)
            else:
                self._polls.append(waiter)
            self.lines.setdefault(waiter.queue, deque()).append(waiter)

    def attach(self, executor: Executor, asked: Attach, cycle: Cycle) -> None:
        """Attach a consumer, or detach it and return what it holds to its queue."""
        consumer = asked.consumer
        if asked.is_closing:
            unseen = {delivery.id for delivery in (*consumer.unseen, *asked.unseen)}
            cycle.ended.append(consumer)
            id_of = executor.ledger.ids.id_of
            freed = [Receipt(id_of(number), token) for holder, number, token in self.freed if holder is consumer]
            held = [Receipt(id_of(number), token) for number, token in self.detach(consumer).items()]
            take_back(executor, consumer.queue, held, freed, unseen, cycle, asked.reply)
        elif asked.reply.done():
            return  # the caller is gone, so nothing would ever detach it
        elif (absent := still_missing(executor, consumer.queue, cycle)) is not None:
            cycle.answer(asked.reply, absent)
        elif (refusal := self._refusal()) is not None:
            cycle.answer(asked.reply, refusal)
        else:
            self._waiting += 1
            self.attached.setdefault(consumer.queue, []).append(consumer)
            self._list(consumer)
            cycle.begun.append(consumer)
            cycle.answer(asked.reply, None)

    def _refusal(self) -> TooManyWaiters | None:
        """Return why one more may not wait, after those were counted out that gave up without a word."""
        if self._waiting >= self._waiters_max:
            for line in self.lines.values():
                for taker in line:
                    if isinstance(taker, Waiter) and not taker.is_over and taker.reply.done():
                        self._end(taker)
        if self._waiting < self._waiters_max:
            return None
        cause = f"{self._waiting} consumers are waiting already; waiters_max is {self._waiters_max}."
        return TooManyWaiters(cause, retry_after_ms=RETRY_AFTER_MS)

    def detach(self, consumer: AttachedConsumer) -> dict[int, int]:
        """Remove an attached consumer, and return the numbers of what it holds with their tokens."""
        if consumer.is_closed or consumer not in self.attached.get(consumer.queue, ()):
            return {}
        consumer.is_closed = True
        self._waiting -= 1
        left = self.attached[consumer.queue]
        left.remove(consumer)
        if not left:
            del self.attached[consumer.queue]
        for number in consumer.held:
            self.holders.pop(number, None)
        return consumer.held

    def dismiss(self, queue: str) -> list[Waiter | AttachedConsumer]:
        """Forget the line of a queue, and return everyone who waits or is attached there."""
        line = self.lines.pop(queue, deque())
        waiters = [taker for taker in line if isinstance(taker, Waiter) and not taker.is_over]
        for waiter in waiters:
            self._end(waiter)
        return [*waiters, *self.attached.get(queue, ())]

    def dismiss_deleted(self, queue: str, cycle: Cycle) -> None:
        """Refuse everyone who waits at a queue that was deleted in this cycle, and detach its consumers."""
        for taker in self.dismiss(queue):
            if isinstance(taker, Waiter):
                cycle.answer(taker.reply, QueueNotFound(f"Queue {queue!r} has been deleted."))
            else:
                self.detach(taker)
                cycle.ended.append(taker)

    def everybody(self) -> list[Waiter]:
        """Return all waiters, and forget them."""
        waiters = [taker for line in self.lines.values() for taker in line if isinstance(taker, Waiter)]
        waiters = [waiter for waiter in waiters if not waiter.is_over]
        for waiter in waiters:
            self._end(waiter)
        return waiters

    def all_attached(self) -> list[AttachedConsumer]:
        """Return all attached consumers."""
        return [consumer for consumers in self.attached.values() for consumer in consumers]

    def waiting(self, queue: str, *, only_polls: bool = False) -> int:
        """Return how many wait at a queue, without those that gave up; or only the polls, without streams."""
        line = [taker for taker in self.lines.get(queue, ()) if isinstance(taker, Waiter) or not only_polls]
        return sum(1 for taker in line if not (isinstance(taker, Waiter) and (taker.is_over or taker.reply.done())))

    def _end(self, waiter: Waiter) -> None:
        waiter.is_over = True
        self._waiting -= 1

    # ---------------------------------------------------------------------------------------------------------- leasing

    def serve(self, executor: Executor, cycle: Cycle, queues: dict[str, None]) -> None:
        """Lease to those who wait at these queues, or at any queue in which something may have become ready."""
        schedule = executor.schedule
        queues |= dict.fromkeys((*schedule.touched(), *schedule.revived))
        schedule.revived.clear()
        if self._rooms:
            self._settle_rooms()
        interrupted: list[str] = []
        waiting = [name for name in queues if name in self.lines]
        for queue in schedule.in_order(waiting) if len(waiting) > 1 else waiting:
            if cycle.handed_out >= self._cycle_events_max:
                self.unserved[queue] = None
                continue
            self._serve_line(executor, cycle, queue)
            if cycle.handed_out >= self._cycle_events_max:
                interrupted.append(queue)
        # Queues that got nothing in this cycle are first in the next; the one that was cut short comes after them.
        self.unserved.update(dict.fromkeys(interrupted))
        if schedule.revived:
            self.serve_revived(schedule)
        entries, late = self.limits.entries, [waiter for waiter in self._polls if not waiter.is_over]
        self._polls.clear()
        if entries and entries[0][0] <= cycle.now_ms:
            late = [*self.limits.pop_due(cycle.now_ms), *late]
        if late:
            self._time_out(late, cycle)

    def _settle_rooms(self) -> None:
        for room in self._rooms:
            room.settle()
        self._rooms.clear()

    def _serve_line(self, executor: Executor, cycle: Cycle, queue: str) -> None:
        """Serve the line of a queue from the front, until it is empty or nothing can be leased."""
        line = self.lines.get(queue)
        passed_over: list[Waiter | AttachedConsumer] = []
        busy: list[Waiter | AttachedConsumer] = []
        while line:
            taker = line[0]
            if not self._is_eligible(taker):
                line.popleft()
                continue
            if taker.room is not None and taker.room.left <= 0:
                taker.room.pass_over(self, queue)
                passed_over.append(line.popleft())
                continue
            count = taker.count if taker.handlers is None else _count_for(taker, executor.schedule, cycle)
            if count <= 0:
                busy.append(taker)
                passed_over.append(line.popleft())
                continue
            hand_out = self._lease_to(executor, taker, count, cycle)
            if hand_out is None:
                break
            line.popleft()
            cycle.hand_outs.append(hand_out)
            if isinstance(taker, Waiter):
                taker.is_over = True
                self._waiting -= 1
            else:
                self._note_held(taker, hand_out)
        if passed_over:
            self.lines.setdefault(queue, deque()).extendleft(reversed(passed_over))
        elif not line:
            self.lines.pop(queue, None)
        if busy and executor.schedule.may_pick(queue) and _count_for(busy[0], executor.schedule, cycle) > 0:
            self.serve_again(queue)  # others have taken the prompt messages, so the rest can be prefetched

    def serve_again(self, queue: str) -> None:
        """Serve a queue with the next cycle, because a reader that was passed over has room."""
        self.unserved[queue] = None
        self.on_unserved()

    def serve_revived(self, schedule: Schedule) -> None:
        """Serve queues with the next cycle that got tokens from a queue which this cycle has emptied."""
        self.unserved.update(dict.fromkeys(queue for queue in schedule.revived if queue in self.lines))
        schedule.revived.clear()

    def _is_eligible(self, taker: Waiter | AttachedConsumer) -> bool:
        if isinstance(taker, AttachedConsumer):
            if not taker.is_closed and taker.count > 0:
                return True
            taker.is_listed = False
            return False
        if not taker.is_over and taker.reply.done():
            self._end(taker)  # given up, and nothing was leased for it
        return not taker.is_over

    def _lease_to(
        self, executor: Executor, taker: Waiter | AttachedConsumer, count: int, cycle: Cycle
    ) -> HandOut | None:
        """Pick and lease what is next in the queue, up to what the taker can take and the cycle may hand out."""
        schedule, queue, now_ms = executor.schedule, taker.queue, cycle.now_ms
        # However much came in, a cycle hands out up to its own limit, so neither side starves the other.
        if cycle.handed_out >= self._cycle_events_max or not schedule.may_pick(queue):
            return None
        size_bytes = self._answer_bytes_max - cycle.handed_out_bytes
        if taker.room is not None:
            size_bytes = min(size_bytes, taker.room.left)
        # Handlers run at the same time, so messages that are kept in order must not come to them together.
        is_single = taker.handlers is not None or isinstance(taker, AttachedConsumer)
        picked = schedule.pick(queue, count, now_ms, size_bytes=size_bytes, is_single=is_single)
        if not picked:
            return None
        known, size = schedule.known(queue), 0
        if taker.room is not None or known.largest > self._large_bytes:
            size = sum([message.delivered_bytes if known.is_mixed else message.size for message in picked])
        if taker.room is not None:
            self._rooms.append(taker.room)
            taker.room.pick(size)
        self.wait_times.note(queue, picked, now_ms)
        cycle.handed_out += len(picked)
        if known.largest > self._large_bytes:
            cycle.handed_out_bytes += size
            if cycle.handed_out_bytes >= self._answer_bytes_max:
                cycle.handed_out = max(cycle.handed_out, self._cycle_events_max)
        token = executor.ledger.next_sequence
        command = LeasePicked(
            queue=queue,
            numbers=[message.number for message in picked],
            visibility_ms=taker.visibility_ms,
            owner=taker.owner,
            picking=schedule.last_picking(queue, picked),
        )
        executor.execute(command, cycle)
        return HandOut(taker, picked, token)

    def _note_held(self, taker: AttachedConsumer, hand_out: HandOut) -> None:
        """Count messages against the credit of a consumer, and put it back in line if it can take more."""
        taker.is_listed = False
        for token, message in enumerate(hand_out.messages, hand_out.token):
            taker.held[message.number] = token
            self.holders[message.number] = taker
        self._list(taker)

    def _list(self, consumer: AttachedConsumer) -> None:
        """Add an attached consumer to the end of its line, if it can take a message and is not there yet."""
        if not consumer.is_listed and not consumer.is_closed and consumer.count > 0:
            consumer.is_listed = True
            self.lines.setdefault(consumer.queue, deque()).append(consumer)

    def _time_out(self, late: list[Waiter], cycle: Cycle) -> None:
        """Answer waiters whose patience has ended, except at queues that are still to be served."""
        for waiter in late:
            if waiter.queue in self.unserved:
                self.limits.push(waiter.until_ms, waiter)
                continue
            self._end(waiter)
            cycle.answer(waiter.reply, NO_MESSAGES)
            self._ended[waiter.queue] = self._ended.get(waiter.queue, 0) + 1
        for queue in dict.fromkeys([waiter.queue for waiter in late if waiter.is_over]):
            self._sweep(queue)

    def _sweep(self, queue: str) -> None:
        """Remove the entries of ended waits once they may be half of a line: the one in front may wait long."""
        line = self.lines.get(queue)
        if line is not None and self._ended[queue] > _SWEEP_FROM and 2 * self._ended[queue] > len(line):
            alive = [taker for taker in line if not (isinstance(taker, Waiter) and taker.is_over)]
            line.clear()
            line.extend(alive)
        if line is None or self._ended[queue] > len(line):
            del self._ended[queue]

    # ----------------------------------------------------------------------------------------------------------- credit

    def free(self, record: AnyRecord) -> None:
        """Give consumers back the credit of messages that a record took from their hands."""
        if not isinstance(record, ENDS):
            return
        if isinstance(record, Removed) and record.reason == "cancelled":
            self.revocations.note(record, self.freed)
        for number in record.numbers:
            holder = self.holders.pop(number, None)
            if holder is not None:
                self.freed.append((holder, number, holder.held.pop(number, 0)))
                self._list(holder)

    def restore(self) -> None:
        """Take back the credit that was freed by a cycle that failed: the consumers still hold the messages."""
        self.revocations.clear()
        for consumer, number, token in self.freed:
            if not consumer.is_closed:
                consumer.held[number] = token
                self.holders[number] = consumer
        self.freed.clear()

    def fail(self, cycle: Cycle) -> None:
        """Forget the consumers that began in a failed cycle, and end those that ended in it."""
        self.restore()
        for consumer in cycle.begun:
            self.detach(consumer)
        for consumer in cycle.ended:
            consumer.deliver([])

    def reconcile(self, token_of: Callable[[str, int], int]) -> None:
        """After a recovery, forget what consumers do not hold any more by the ledger, and serve every line again."""
        self.holders.clear()
        for consumer in self.all_attached():
            for number, token in list(consumer.held.items()):
                if token_of(consumer.queue, number) == token:
                    self.holders[number] = consumer
                else:
                    del consumer.held[number]
            self._list(consumer)
        self.unserved = dict.fromkeys(self.lines)


def _count_for(taker: Waiter | AttachedConsumer, schedule: Schedule, cycle: Cycle) -> int:
    """Return how many messages may go to a taker now; while a prompt one could, no more than it has free handlers."""
    return taker.free if schedule.has_prompt(taker.queue, cycle.now_ms) else taker.count
