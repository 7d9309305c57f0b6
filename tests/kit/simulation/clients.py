"""The simulation's clients: producers, consumers and operators that do reasonable and unreasonable things."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairlane.broker.requests import Attach, AttachedConsumer, Call, Read, StatusWaiter, Submission, Waiter
from fairlane.core.commands import Given
from fairlane.errors import FairlaneError, StoreFailed
from fairlane.model.message import Delivery, NewMessage
from fairlane.verbs.messages import Cancel, Enqueue
from fairlane.verbs.status import GetResult, GetStatus
from fairlane.verbs.verb import Request
from tests.kit.auditor.books import ProducerNumber, violated
from tests.kit.ids import numbered
from tests.kit.simulation.answers import Answer, Holding, Unclear, World
from tests.kit.simulation.workload import QUEUES


@dataclass
class Clients:
    """All clients together, and their knowledge."""

    world: World
    held: list[Holding] = field(default_factory=list)
    stale: list[Holding] = field(default_factory=list)
    unclear: list[Unclear] = field(default_factory=list)
    answered: deque[Unclear] = field(default_factory=lambda: deque(maxlen=8))
    next_numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    waiters: list[tuple[Waiter, Answer]] = field(default_factory=list)
    consumers: list[AttachedConsumer] = field(default_factory=list)
    given: dict[int, list[Delivery]] = field(default_factory=dict)
    redrives: list[str] = field(default_factory=list)
    deliveries: int = 0

    # --------------------------------------------------------------------------------------------------------- asking

    def ask(
        self, label: str, make: Callable[[Answer], Submission], judge: Callable[[Any], None], *, until_ms: int = 0
    ) -> Answer:
        """Submit a request."""
        answer = Answer(self.world, label, judge, until_ms=until_ms)
        self.answers.append(answer)
        self.world.note(label)
        self.world.engine.submit(make(answer))
        return answer

    def do(self, label: str, request: Request[Any], judge: Callable[[Any], None], *, wait_ms: int = 0) -> Answer:
        """Submit a request."""
        until_ms = self.world.now_ms() + wait_ms
        return self.ask(label, lambda answer: Call(request, answer), judge, until_ms=until_ms)

    def read(self, label: str, ask: Callable[[], Any], judge: Callable[[Any], None]) -> None:
        """Submit a read."""
        self.ask(label, lambda answer: Read(ask, answer), judge)

    def forget_process(self) -> None:
        """Note that the broker's process died: pending requests stay unanswered, leases survive."""
        for answer in self.answers:
            answer.give_up()
        self.answers.clear()
        self.waiters.clear()
        self.consumers.clear()
        self.given.clear()

    def _queue(self) -> str:
        """Return a queue, usually an existing one."""
        draw, known = self.world.workload, list(self.world.auditor.books.queues)
        if not known or draw.happens(0.03):
            return draw.one_of(*QUEUES, "nowhere")  # type: ignore[no-any-return] # a name
        plain = [name for name in known if not name.endswith(".dlq")]
        return draw.one_of(*plain)  # type: ignore[no-any-return] # a name

    def _any_queue(self) -> str:
        queue = self._queue()
        return f"{queue}.dlq" if self.world.workload.happens(0.2) else queue

    # ------------------------------------------------------------------------------------------------------- producing

    def enqueue(self) -> None:
        """Enqueue a batch."""
        draw = self.world.workload
        messages = draw.messages()
        bad = set()
        if draw.happens(0.04):
            bad.add(len(messages))
            messages.append(draw.unsound_message())
        if draw.happens(0.05):
            messages.append(messages[0])
        self.send(self._queue(), messages, self._numbers(len(messages)), bad)

    def _numbers(self, count: int) -> list[ProducerNumber | None]:
        """Return the next numbers of a producer, or none."""
        draw = self.world.workload
        if draw.happens(0.5):
            return [None] * count
        caller, producer = draw.one_of("", "key"), draw.one_of("p", "q")
        first = self.next_numbers.get((caller, producer), 0)
        self.next_numbers[caller, producer] = first + count
        return [ProducerNumber(caller, producer, first + at) for at in range(count)]

    def send(self, queue: str, messages: list[NewMessage], numbers: list[ProducerNumber | None], bad: set[int]) -> None:
        """Enqueue messages; those in ``bad`` rows must be rejected."""
        auditor = self.world.auditor
        rows = [row for row in range(len(messages)) if row not in bad]
        for row in rows:
            auditor.note_sent(queue, messages[row], numbers[row])
        unclear = Unclear(queue, [messages[row] for row in rows], [numbers[row] for row in rows])
        self.unclear.append(unclear)
        since = auditor.books.next_sequence

        def judge(outcome: Any) -> None:
            if isinstance(outcome, StoreFailed):
                return
            self.unclear.remove(unclear)
            self.answered.append(unclear)
            auditor.told_missing(queue, outcome)
            auditor.told_not_created(queue, outcome, since=since)
            auditor.told_enqueued(queue, messages, outcome)
            if isinstance(outcome, list) and not all(isinstance(outcome[row], FairlaneError) for row in bad):
                violated(f"an unsound message was answered {outcome}")

        wait_ms = self.world.workload.one_of(0, 0, 500, 10_000)
        label = f"enqueue {len(messages)} {[message.payload[:8] for message in messages]} to {queue}, wait {wait_ms}"
        request, caller = Enqueue(queue=queue, messages=messages, wait_ms=wait_ms), ""
        if numbers and numbers[0] is not None:
            caller, producer, _ = numbers[0]
            known = tuple(each.number for each in numbers if each is not None)
            request = msgspec.structs.replace(request, producer=producer, numbers=known)
        given = Given(by=caller or None)
        until_ms = self.world.now_ms() + wait_ms
        self.ask(label, lambda answer: Call(request, answer, given.by, given), judge, until_ms=until_ms)

    def repeat_enqueue(self) -> None:
        """Repeat enqueues with an unknown outcome that have dedup ids or numbers, and now and then one with a known."""
        draw, waiting = self.world.workload, [answer for answer in self.answers if not answer.done()]
        if self.answered and draw.happens(0.3):
            again = draw.one_of(*self.answered)
        elif self.unclear and not waiting:
            again = self.unclear.pop()
        else:
            return
        rows = [row for row, message in enumerate(again.messages) if message.dedup_id is not None or again.numbers[row]]
        if len(rows) > 1 and draw.happens(0.3):
            rows = sorted(draw.chance.sample(rows, len(rows) - 1))
        if rows:
            self.send(again.queue, [again.messages[row] for row in rows], [again.numbers[row] for row in rows], set())

    def cancel(self) -> None:
        """Cancel some messages."""
        draw, queue = self.world.workload, self._any_queue()
        book = self.world.auditor.books.queues.get(queue)
        held = set() if book is None else book.staged.keys() & self.world.auditor.books.fan_outs.keys()
        numbers = [*book.entries, *sorted(held)] if book is not None else []
        ids = [f"{number:016x}" for number in draw.chance.sample(numbers, min(len(numbers), draw.chance.randint(1, 3)))]
        ids.append(f"{draw.chance.randint(0, 500):016x}")

        only_waiting = draw.happens(0.3)

        def judge(outcome: Any) -> None:
            self.world.auditor.told_cancelled(queue, ids, outcome, only_waiting=only_waiting)

        self.do(f"cancel {ids} of {queue}", Cancel(queue=queue, ids=ids, only_waiting=only_waiting), judge)

    def ask_for_result(self) -> None:
        """Ask for the status or the result of a message, mostly a recent one, and sometimes wait for it."""
        draw, auditor = self.world.workload, self.world.auditor
        births = list(auditor.books.births)[-40:]
        message_id = f"{draw.chance.choice(births):016x}" if births and draw.happens(0.95) else f"{10**6:016x}"
        wait_ms = draw.one_of(0, 0, 2_000, 20_000)
        kind = draw.one_of(GetStatus, GetResult)

        def judge(outcome: Any) -> None:
            auditor.told_result(message_id, outcome, self.world.now_ms())

        request = kind(id=message_id, wait_ms=wait_ms)
        until_ms = self.world.now_ms() + wait_ms
        self.ask(
            f"{kind.__name__} of {message_id}, wait {wait_ms}",
            lambda answer: StatusWaiter(request=request, reply=answer),
            judge,
            until_ms=until_ms,
        )

    # ------------------------------------------------------------------------------------------------------- consuming

    def lease(self) -> None:
        """Lease messages once."""
        draw = self.world.workload
        self.take(
            self._any_queue(),
            count=draw.one_of(1, 1, 3, 8),
            wait_ms=draw.one_of(0, 0, 100, 5_000, 20_000),
            visibility_ms=draw.one_of(None, None, draw.span_ms()),
            with_state=draw.happens(0.3),
        )

    def take(
        self,
        queue: str,
        *,
        count: int = 100,
        wait_ms: int = 0,
        visibility_ms: int | None = None,
        with_state: bool = False,
    ) -> None:
        """Lease messages of a queue."""
        draw = self.world.workload
        until_ms = self.world.now_ms() + wait_ms
        auditor = self.world.auditor
        since = auditor.books.next_sequence

        def judge(outcome: Any) -> None:
            auditor.told_missing(queue, outcome)
            auditor.told_not_created(queue, outcome, since=since)
            if isinstance(outcome, list):
                if len(outcome) > count:
                    violated(f"{len(outcome)} were delivered to one who asked for {count}")
                self._receive(outcome, with_state=with_state)
                if outcome:
                    self._check_in_line(queue, answer)
                if not outcome and self.world.now_ms() < until_ms:
                    violated(f"a waiter at {queue} was sent away at {self.world.now_ms()}, before {until_ms}")
                if not outcome and not wait_ms:
                    auditor.check_served(queue, self.world.now_ms(), "somebody who would not wait")

        def make(answer: Answer) -> Waiter:
            waiter = Waiter(
                queue=queue,
                count=count,
                reply=answer,
                visibility_ms=visibility_ms,
                owner=draw.one_of(None, "w1", "w2"),
                with_state=with_state,
                wait_ms=wait_ms,
            )
            self.waiters.append((waiter, answer))
            return waiter

        answer = self.ask(f"lease {count} of {queue}, wait {wait_ms}", make, judge, until_ms=until_ms)

    def _check_in_line(self, queue: str, served: Answer) -> None:
        """Check that consumers of a queue are served in the order in which they came."""
        for waiter, answer in self.waiters:
            if answer is served:
                return
            if waiter.queue == queue and not answer.done() and answer.until_ms <= served.until_ms:
                violated(f"{served.label} was answered before {answer.label}, which came first")

    def _receive(self, deliveries: Sequence[Delivery], *, with_state: bool) -> None:
        for delivery in deliveries:
            self.world.auditor.delivered(delivery, with_state=with_state)
            self.held.append(Holding(delivery, delivery.state_etag))
            self.deliveries += 1

    def give_up_waiting(self) -> None:
        """Cancel a waiting lease."""
        waiting = [pair for pair in self.waiters if not pair[1].done()]
        if waiting:
            _, answer = self.world.workload.chance.choice(waiting)
            self.world.note(f"give up: {answer.label}")
            answer.give_up()

    def attach(self) -> None:
        """Attach a streaming consumer."""
        draw, world = self.world.workload, self.world
        queue, credit, with_state = self._any_queue(), draw.one_of(1, 3, 10), draw.happens(0.3)
        handlers = {1: 1, 3: 2, 10: None if with_state else 4}[credit]
        got: list[Delivery] = []

        def deliver(deliveries: list[Delivery]) -> None:
            world.answering()
            world.note(f"  consumer of {queue} gets {[(numbered(one.id), one.token) for one in deliveries]}")
            if not deliveries:  # the queue is gone, and with it the stream
                self.consumers = [other for other in self.consumers if other is not consumer]
                return
            self._receive(deliveries, with_state=with_state)
            got.extend(deliveries)
            got[:] = [one for one in got if world.auditor.holds(one, world.now_ms())]
            if len(got) > credit:
                violated(f"a consumer with credit {credit} has {len(got)} in flight")
            if handlers is not None and len(got) > handlers and any(map(world.auditor.is_prompt, deliveries)):
                violated(f"a consumer with {handlers} handlers and {len(got)} in flight got a prompt message")

        consumer = AttachedConsumer(
            queue=queue,
            credit=credit,
            deliver=deliver,
            with_state=with_state,
            owner=draw.one_of(None, "c"),
            handlers=handlers,
        )

        since = world.auditor.books.next_sequence

        def judge(outcome: Any) -> None:
            world.auditor.told_missing(queue, outcome)
            world.auditor.told_not_created(queue, outcome, since=since)
            if outcome is None:
                self.consumers.append(consumer)
                self.given[id(consumer)] = got

        self.ask(f"attach to {queue}, credit {credit}", lambda answer: Attach(consumer, answer), judge)

    def detach(self) -> None:
        """Detach a streaming consumer, orderly or not."""
        if not self.consumers:
            return
        draw = self.world.workload
        consumer = draw.chance.choice(self.consumers)
        self.consumers.remove(consumer)
        got = self.given.pop(id(consumer))
        unseen = [delivery for delivery in got if draw.happens(0.3)]

        def judge(outcome: Any) -> None:
            if isinstance(outcome, StoreFailed):
                return
            kept = [one.id for one in got if self.world.auditor.holds(one, self.world.now_ms())]
            if kept:
                violated(f"a consumer of {consumer.queue} has left, and still holds {kept}")

        self.ask(
            f"detach from {consumer.queue}, {len(unseen)} unseen",
            lambda answer: Attach(consumer, answer, is_closing=True, unseen=unseen),
            judge,
        )
