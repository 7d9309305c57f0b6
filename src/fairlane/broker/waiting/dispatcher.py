"""The dispatcher: consumers wait here without polling, first come first served in each queue.

It knows who waits and who holds what; it neither picks nor leases. When something may have become ready in a queue the
engine asks it to serve, and hands it a function that leases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable

from fairlane.broker.requests import Consumer, HandOut, Waiter
from fairlane.core.decide.room import RETRY_AFTER_MS
from fairlane.errors import TooManyWaiters
from fairlane.journal.records import Acked, AnyRecord, Dead, OfMessages, Removed, Returned
from fairlane.model.message import Receipt
from fairlane.model.names import id_of
from fairlane.scheduler.timers import Timers

LeaseOut = Callable[[Waiter | Consumer], "HandOut | None"]
_SWEEP_FROM = 16
_ENDS = (Acked, Returned, Dead, Removed)


class Dispatcher:
    """Who waits, in which order, and what consumers that stay have in flight."""

    def __init__(self, *, waiters_max: int) -> None:
        self._waiters_max = waiters_max
        self._lines: dict[str, deque[Waiter | Consumer]] = {}
        self._waiting = 0
        self._limits: Timers[Waiter] = Timers(lambda at_ms, waiter: not waiter.is_over and waiter.until_ms == at_ms)
        self._holders: dict[int, Consumer] = {}
        self._ended: dict[str, int] = {}
        self._freed: list[tuple[Consumer, int, int]] = []
        self.consumers: dict[str, list[Consumer]] = {}

    # ------------------------------------------------------------------------------------------------- coming and going

    def wait(self, waiter: Waiter, now_ms: int) -> TooManyWaiters | None:
        """Let a waiter join the line of its queue, or return why it may not."""
        if waiter.wait_ms and (refusal := self._refusal()) is not None:
            return refusal
        self._waiting += 1
        waiter.until_ms = now_ms + waiter.wait_ms
        self._limits.push(waiter.until_ms, waiter)
        self._lines.setdefault(waiter.queue, deque()).append(waiter)
        return None

    def attach(self, consumer: Consumer) -> TooManyWaiters | None:
        """Let a consumer begin, or return why it may not."""
        if (refusal := self._refusal()) is not None:
            return refusal
        self._waiting += 1
        self.consumers.setdefault(consumer.queue, []).append(consumer)
        self._list(consumer)
        return None

    def _refusal(self) -> TooManyWaiters | None:
        if self._waiting >= self._waiters_max:
            for line in self._lines.values():  # some may have given up without a word
                for taker in line:
                    if isinstance(taker, Waiter) and not taker.is_over and taker.reply.done():
                        self._end(taker)
        if self._waiting < self._waiters_max:
            return None
        cause = f"{self._waiting} consumers wait already; waiters_max is {self._waiters_max}."
        return TooManyWaiters(cause, retry_after_ms=RETRY_AFTER_MS)

    def detach(self, consumer: Consumer) -> list[Receipt]:
        """Let a consumer end, and return what it has in flight."""
        if consumer.is_closed or consumer not in self.consumers.get(consumer.queue, ()):
            return []
        consumer.is_closed = True
        self._waiting -= 1
        left = self.consumers[consumer.queue]
        left.remove(consumer)
        if not left:
            del self.consumers[consumer.queue]
        for number in consumer.held:
            self._holders.pop(number, None)
        return [Receipt(id_of(number), token) for number, token in consumer.held.items()]

    def timed_out(self, now_ms: int, *, but_not_at: Container[str] = ()) -> list[Waiter]:
        """Return the waiters that have waited as long as they would, but for those at some queues."""
        due = self._limits.pop_due(now_ms)
        if not due:
            return []
        waiters = [waiter for waiter in due if waiter.queue not in but_not_at]
        if len(waiters) < len(due):
            for waiter in due:
                if waiter.queue in but_not_at:
                    self._limits.push(waiter.until_ms, waiter)
        for waiter in waiters:
            self._end(waiter)
            self._ended[waiter.queue] = self._ended.get(waiter.queue, 0) + 1
        for queue in dict.fromkeys(waiter.queue for waiter in waiters):
            self._sweep(queue)
        return waiters

    def _sweep(self, queue: str) -> None:
        """Take those out of a line whose wait is over, once they may be half of it: the one in front may wait long."""
        line = self._lines.get(queue)
        if line is not None and self._ended[queue] > _SWEEP_FROM and 2 * self._ended[queue] > len(line):
            alive = [taker for taker in line if not (isinstance(taker, Waiter) and taker.is_over)]
            line.clear()
            line.extend(alive)
        if line is None or self._ended[queue] > len(line):
            del self._ended[queue]

    def dismiss(self, queue: str) -> list[Waiter | Consumer]:
        """Return everybody who waits at a queue, which is going away."""
        line = self._lines.pop(queue, deque())
        waiters = [taker for taker in line if isinstance(taker, Waiter) and not taker.is_over]
        for waiter in waiters:
            self._end(waiter)
        return [*waiters, *self.consumers.get(queue, ())]

    def everybody(self) -> list[Waiter]:
        """Return all that wait once, and forget them."""
        waiters = [taker for line in self._lines.values() for taker in line if isinstance(taker, Waiter)]
        waiters = [waiter for waiter in waiters if not waiter.is_over]
        for waiter in waiters:
            self._end(waiter)
        return waiters

    def next_limit_at(self) -> int | None:
        """Return when the next waiter has waited long enough."""
        return self._limits.next_at()

    def waiting(self, queue: str) -> int:
        """Return how many wait at a queue; who has given up without a word waits no more."""
        line = self._lines.get(queue, ())
        return sum(1 for taker in line if not (isinstance(taker, Waiter) and (taker.is_over or taker.reply.done())))

    def _end(self, waiter: Waiter) -> None:
        waiter.is_over = True
        self._waiting -= 1

    # ---------------------------------------------------------------------------------------------------------- serving

    def queues(self) -> Iterable[str]:
        """Return the queues at which somebody waits."""
        return self._lines.keys()

    def serve(self, queue: str, lease_out: LeaseOut) -> list[HandOut]:
        """Serve a queue's line from the front, until it is empty or there is nothing to lease."""
        line = self._lines.get(queue)
        hand_outs: list[HandOut] = []
        while line:
            taker = line[0]
            if not self._is_eligible(taker):
                line.popleft()
                continue
            hand_out = lease_out(taker)
            if hand_out is None:
                return hand_outs
            line.popleft()
            hand_outs.append(hand_out)
            self._served(taker, hand_out)
        self._lines.pop(queue, None)
        return hand_outs

    def _is_eligible(self, taker: Waiter | Consumer) -> bool:
        if isinstance(taker, Consumer):
            if not taker.is_closed and taker.count > 0:
                return True
            taker.is_listed = False
            return False
        if not taker.is_over and taker.reply.done():
            self._end(taker)  # given up, and nothing was leased for it
        return not taker.is_over

    def _served(self, taker: Waiter | Consumer, hand_out: HandOut) -> None:
        if isinstance(taker, Waiter):
            self._end(taker)
            return
        taker.is_listed = False
        for token, message in enumerate(hand_out.messages, hand_out.token):
            taker.held[message.number] = token
            self._holders[message.number] = taker
        self._list(taker)

    def _list(self, consumer: Consumer) -> None:
        if not consumer.is_listed and not consumer.is_closed and consumer.count > 0:
            consumer.is_listed = True
            self._lines.setdefault(consumer.queue, deque()).append(consumer)

    def note(self, record: AnyRecord) -> None:
        """Give consumers back the credit of messages that are no longer in their hands."""
        if not self._holders or not isinstance(record, _ENDS):
            return
        self._free(record)

    def _free(self, record: OfMessages) -> None:
        for number in record.numbers:
            holder = self._holders.pop(number, None)
            if holder is not None:
                self._freed.append((holder, number, holder.held.pop(number, 0)))
                self._list(holder)

    def confirm(self) -> None:
        """Take note that everything up to now is durable."""
        self._freed.clear()

    def restore(self) -> None:
        """Give consumers back what they hold after all, because the cycle that took it from them has failed."""
        for consumer, number, token in self._freed:
            if not consumer.is_closed:
                consumer.held[number] = token
                self._holders[number] = consumer
        self._freed.clear()

    def reconcile(self, token_of: Callable[[str, int], int]) -> None:
        """After a recovery, forget what consumers do not hold any more."""
        self._holders.clear()
        for consumers in self.consumers.values():
            for consumer in consumers:
                for number, token in list(consumer.held.items()):
                    if token_of(consumer.queue, number) == token:
                        self._holders[number] = consumer
                    else:
                        del consumer.held[number]
                self._list(consumer)
