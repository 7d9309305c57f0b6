"""What the simulation's operators do, and the list of all actions with their probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlane.broker.views import queues as views
from fairlane.broker.views.journal import read_journal
from fairlane.errors import FairlaneError, QueueExists
from fairlane.model.message import MessageView
from fairlane.model.views import DeadLetterFilter, Explained, QueueView, RedriveView
from fairlane.verbs.config import SetConfig
from fairlane.verbs.dead_letters import Redrive, StopRedrive
from fairlane.verbs.journal import RemoveReader, SetReader
from fairlane.verbs.methods.conversions import fields_of
from fairlane.verbs.queues import (
    CreateQueue,
    DeleteQueue,
    EnsuredQueue,
    EnsureQueue,
    PauseQueue,
    PurgeQueue,
    ResumeQueue,
    UpdateQueue,
)
from tests.kit.auditor.books import violated
from tests.kit.ids import numbered
from tests.kit.simulation.fan_outs import FanOutProducers
from tests.kit.simulation.workload import QUEUES


def _believe(_outcome: object) -> None:
    """Accept any answer, because the journal is checked anyway."""


class Everybody(FanOutProducers):
    """Producers, consumers and operators."""

    def operations(self) -> list[tuple[float, Callable[[], None]]]:
        """Return all actions with their probabilities."""
        return [
            (26, self.enqueue),
            (4, self.repeat_enqueue),
            (3, self.fan_out),
            (18, self.lease),
            (2, self.give_up_waiting),
            (2, self.attach),
            (1.5, self.detach),
            (14, self.ack),
            (3, self.ack_and_forward),
            (6, self.nack),
            (4, self.extend),
            (4, self.set_state),
            (5, self.use_stale),
            (3, self.cancel),
            (5, self.ask_for_result),
            (0.4, self.purge),
            (3, self.pause_or_resume),
            (2, self.create),
            (1, self.ensure),
            (1.5, self.update),
            (0.3, self.delete),
            (5, self.configure),
            (2, self.redrive),
            (0.5, self.stop_redrive),
            (1, self.move_reader),
            (3, self.look),
            (2, self.register),
            (8, self.claim),
            (5, self.read_claim),
            (0.5, self.release_consumer),
            (7, self.stage),
            (3, self.publish),
            (0.3, self.drop_sink),
            (2, self.begin_upload),
            (9, self.upload_piece),
            (5, self.enqueue_upload),
            (0.5, self.drop_upload),
            (3, self.read_payload),
            (1.5, self.set_schedule),
            (0.6, self.pause_or_resume_schedule),
            (0.4, self.run_schedule),
            (0.3, self.delete_schedule),
        ]

    # ------------------------------------------------------------------------------------------------------- operating

    def create(self) -> None:
        """Create a queue."""
        draw = self.world.workload
        missing = [name for name in QUEUES if name not in self.world.auditor.books.queues]
        queue = draw.one_of(*(missing or QUEUES))

        def judge(outcome: Any) -> None:
            if (outcome is None or isinstance(outcome, QueueExists)) and queue not in self.world.auditor.books.queues:
                self._check_gone(queue)

        self.do(f"create {queue}", CreateQueue(queue=queue, policy=fields_of(draw.policy())), judge)

    def ensure(self) -> None:
        """Create a queue unless it exists; the policy of one that exists stays."""
        draw = self.world.workload
        queue = draw.one_of(*QUEUES)

        def judge(outcome: Any) -> None:
            if isinstance(outcome, EnsuredQueue) and queue not in self.world.auditor.books.queues:
                self._check_gone(queue)

        self.do(f"ensure {queue}", EnsureQueue(queue=queue, policy=fields_of(draw.policy())), judge)

    def _check_gone(self, queue: str) -> None:
        if not self.world.auditor.books.counts["QueueRemoved"]:
            violated(f"queue {queue} was made, and is not there")

    def update(self) -> None:
        """Change a policy while the queue is in use."""
        book = self.world.auditor.books.queues.get(self._queue())
        if book is not None:
            policy = self.world.workload.policy(before=book.policy)
            self.do(f"update {book.name}", UpdateQueue(queue=book.name, policy=fields_of(policy)), _believe)

    def delete(self) -> None:
        """Delete a queue and its messages."""
        queue = self._queue()
        self.do(f"delete {queue}", DeleteQueue(queue=queue), _believe)

    def purge(self) -> None:
        """Purge a queue."""
        queue, with_leased = self._any_queue(), self.world.workload.happens(0.5)
        self.do(f"purge {queue}, {with_leased=}", PurgeQueue(queue=queue, with_leased=with_leased), _believe)

    def pause_or_resume(self) -> None:
        """Pause a queue or a key, or resume one that is paused."""
        draw, queue = self.world.workload, self._any_queue()
        book = self.world.auditor.books.queues.get(queue)
        key = draw.one_of(None, draw.key())
        is_paused = draw.happens(0.35)
        if not is_paused and book is not None and book.paused and draw.happens(0.7):
            key = draw.one_of(*sorted(book.paused))
        command = PauseQueue(queue=queue, key=key) if is_paused else ResumeQueue(queue=queue, key=key)
        self.do(f"{'pause' if is_paused else 'resume'} {queue}, key {key}", command, _believe)

    def configure(self) -> None:
        """Change config."""
        draw = self.world.workload
        values = dict(draw.setting() for _ in range(draw.one_of(1, 1, 2)))

        def judge(outcome: Any) -> None:
            if isinstance(outcome, FairlaneError) and outcome.code != "store_failed":
                violated(f"{values} was refused: {outcome!r}")

        expire_after_ms = draw.one_of(None, None, draw.span_ms())
        request = SetConfig(values=values, expire_after_ms=expire_after_ms)
        self.do(f"config {values} for {expire_after_ms} ms", request, judge)

    def redrive(self) -> None:
        """Redrive some dead letters, sometimes at a rate, or only count them."""
        draw, engine = self.world.workload, self.world.engine
        dlq = f"{self._queue()}.dlq" if draw.happens(0.7) else self._queue()
        wanted = DeadLetterFilter(
            fairness_key=draw.one_of(None, None, draw.key()),
            error=draw.one_of(None, None, "boom"),
            reason=draw.one_of(None, None, "max_attempts", "deadline"),
            origin=draw.one_of(None, None, self._queue()),
            older_than_ms=draw.one_of(None, None, draw.span_ms()),
        )
        wanted = draw.one_of(DeadLetterFilter(), wanted)
        count, rate, is_dry_run = draw.one_of(None, None, 3), draw.one_of(None, 5.0, 0.3), draw.happens(0.1)
        target = draw.one_of(None, None, self._queue())

        request = Redrive(queue=dlq, wanted=wanted, count=count, rate=rate, is_dry_run=is_dry_run, target=target)

        def judge(outcome: Any) -> None:
            if isinstance(outcome, RedriveView) and not outcome.is_dry_run:
                self.redrives.append(outcome.id)

        label = f"redrive {dlq}, count {count}, rate {rate}, {wanted}"
        if is_dry_run:
            self.read(
                label, lambda: engine.redrives.dry_runs.start(engine.ledger, request, engine.now_ms(), None), judge
            )
        else:
            self.do(label, request, judge)

    def stop_redrive(self) -> None:
        """Stop a redrive."""
        if self.redrives:
            redrive_id = self.world.workload.chance.choice(self.redrives)

            def judge(outcome: Any) -> None:
                if isinstance(outcome, RedriveView) and outcome.status == "running":
                    violated(f"{redrive_id} was stopped, and is shown as {outcome}")

            self.do(f"stop {redrive_id}", StopRedrive(id=redrive_id), judge)

    def move_reader(self) -> None:
        """Register a reader of the journal, advance it, or remove it."""
        draw, books = self.world.workload, self.world.auditor.books
        position = draw.one_of(None, books.next_sequence - 1, draw.chance.randint(0, books.next_sequence))
        name = draw.one_of("spark", "audit")
        request = RemoveReader(name=name) if position is None else SetReader(name=name, position=position)
        self.do(f"reader {name} at {position}", request, _believe)

    # --------------------------------------------------------------------------------------------------------- looking

    def look(self) -> None:
        """Call a verb that changes nothing."""
        self.world.workload.one_of(self._look_at_queue, self._look_at_message, self._look_at_journal)()

    def _look_at_queue(self) -> None:
        queue, engine = self._queue(), self.world.engine
        books = self.world.auditor.books

        def judge(outcome: Any) -> None:
            if isinstance(outcome, QueueView):
                book = books.queues[queue]
                dlq = books.queues.get(book.policy.dead_letter_queue or "") or books.queues[f"{queue}.dlq"]
                leased = sum(1 for entry in book.entries.values() if entry.token)
                size = sum(entry.size for entry in book.entries.values())
                dead = sum(1 for entry in dlq.entries.values() if dlq.is_dlq or entry.origin is not None)
                expected = (len(book.entries) - leased, leased, size, dead, book.is_paused)
                found = (outcome.waiting, outcome.leased, outcome.size, outcome.dead, outcome.is_paused)
                if found != expected:
                    violated(f"queue {queue} was shown as {found}, and is {expected}")

        def ask() -> QueueView:
            return views.queue_details(engine, queue, engine.now_ms())

        self.read(f"inspect {queue}", ask, judge)

    def _look_at_message(self) -> None:
        alive = list(self.world.auditor.books.alive())
        if not alive:
            return
        entry, engine = self.world.workload.chance.choice(alive), self.world.engine
        queue, message_id = entry.queue, f"{entry.number:016x}"

        def judge(outcome: Any) -> None:
            now = self.world.auditor.books.entry(queue, numbered(message_id))
            if isinstance(outcome, Explained) and (now is None or bool(now.token) != (outcome.reason == "leased")):
                violated(f"message {message_id} was explained as {outcome}, and is {now}")

        def ask() -> Explained:
            return views.explain(engine.ledger, engine.schedule, engine.consumers, queue, message_id, engine.now_ms())

        self.read(f"explain {message_id} of {queue}", ask, judge)
        self._get(queue, message_id)

    def _get(self, queue: str, message_id: str) -> None:
        engine, books = self.world.engine, self.world.auditor.books

        def judge(outcome: Any) -> None:
            if isinstance(outcome, MessageView):
                number = numbered(message_id)
                entry, sent = books.must_have(queue, number, "showing"), books.births[number].message
                found = (
                    outcome.payload,
                    outcome.headers,
                    outcome.attempts,
                    outcome.failures,
                    outcome.status == "leased",
                )
                if found != (sent.payload, sent.headers, entry.attempts, entry.failures, bool(entry.token)):
                    violated(f"message {message_id} was shown as {outcome}, and is {entry}")

        def ask() -> MessageView:
            message = views.known_message(engine.ledger, queue, message_id)
            return views.views_of(engine.bodies, [message], with_body=True, now_ms=engine.now_ms())[0]

        self.read(f"get {message_id} of {queue}", ask, judge)

    def _look_at_journal(self) -> None:
        engine, books = self.world.engine, self.world.auditor.books
        after = self.world.workload.chance.randint(0, books.next_sequence)

        def judge(outcome: Any) -> None:
            if not isinstance(outcome, FairlaneError) and outcome.position >= books.next_sequence:
                violated(f"the journal was read to {outcome.position}, and ends before {books.next_sequence}")

        ask = lambda: read_journal(engine.store, engine.ledger, after=after, count=50)  # noqa: E731 - one use
        self.read(f"journal after {after}", ask, judge)
