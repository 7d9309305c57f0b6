"""The auditor: an independent model of the broker, built from the answers to clients and from durable commits.

It never asks the code under test what should be true. ``auditor.journal`` enters the journal's records into books with
its own code; the auditor checks every answer against the books when it arrives; and after each step the broker's memory
and its store must agree with them. A request that ended in ``StoreFailed``, or whose broker died, may have happened:
the books know, because they contain durable commits and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fairlane.broker.engine.recovery import recover
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.errors import (
    FairlaneError,
    LeaseMismatch,
    MessageCancelled,
    MessageNotFound,
    NotPending,
    OutOfOrder,
    QueueNotFound,
    StateMismatch,
)
from fairlane.model.broker_limits import Limits
from fairlane.model.ids import number_text
from fairlane.model.message import NEVER_MS, PRIORITY_NAMES, Delivery, NewMessage
from tests.kit.auditor.books import Books, Entry, ProducerNumber, QueueBook, Sent, named, path_of, violated
from tests.kit.auditor.claims import check_present, picture_of_consumer
from tests.kit.auditor.fan_outs import check_fan_outs
from tests.kit.auditor.finished import check_finished, check_swept, told_status
from tests.kit.auditor.journal import JournalAuditor, picture_of_entry
from tests.kit.auditor.redrives import check_redrives
from tests.kit.auditor.rules import Rules
from tests.kit.auditor.schedules import check_settled, pictures_of_schedules
from tests.kit.auditor.sinks import check_heard, pictures_of_sinks
from tests.kit.auditor.uploads import check_silent, check_uploads
from tests.kit.ids import numbered
from tests.kit.simulation.store import SimulatedDisk

Outcome = object
GONE = (LeaseMismatch, MessageNotFound, MessageCancelled, QueueNotFound)
"""Refusals that say that a lease has ended."""


class Auditor:
    """Checks answers, deliveries, memory and store.

    Attributes:
        sent: what producers have sent, by payload: every payload is used once, or repeated with its dedup id.
    """

    def __init__(self, disk: SimulatedDisk, now_ms: Callable[[], int]) -> None:
        self.books = Books()
        self.rules = Rules(self.books)
        self.sent: dict[bytes, Sent] = {}
        self.journal = JournalAuditor(self.books, self.rules, self.sent)
        self._disk = disk
        self._now_ms = now_ms
        self._accepted: set[int] = set()
        self._opened_ms = 0
        self.heard: dict[tuple[str, str], int] = {}
        """When each consumer was last heard from."""
        disk.on_durable = self.journal.enter
        disk.on_recover = self._note_opening

    def _note_opening(self) -> None:
        self._opened_ms = max(self._now_ms(), self.books.at_ms)
        self.rules.note_opening(max(self._now_ms(), self.books.at_ms))

    # ------------------------------------------------------------------------------------------------------ answers

    def note_sent(self, queue: str, message: NewMessage, number: ProducerNumber | None = None) -> None:
        """Note what a producer sends, the first time or again."""
        sent = self.sent.setdefault(message.payload, Sent(queue, message, self.books.next_sequence))
        sent.numbers.add(number)

    def told_enqueued(self, queue: str, messages: Sequence[NewMessage], outcome: Outcome) -> None:
        """Check the answer to an enqueue: each id is a durable message: the sent one, or the one that it repeats."""
        if isinstance(outcome, list):
            for message, result in zip(messages, outcome, strict=True):
                if isinstance(result, str):
                    self._told_id(queue, message, numbered(result))

    def _told_id(self, queue: str, message: NewMessage, number: int) -> None:
        birth = self.books.births.get(number)
        if birth is None:
            violated(f"enqueue of {message.payload[:20]!r} was acknowledged as {number}, which is not durable")
        is_repeat = (message.dedup_id is not None and birth.dedup_id == message.dedup_id) or (
            message.unique_key is not None and birth.message.unique_key == message.unique_key
        )
        if birth.queue != queue or not (birth.message.payload == message.payload or is_repeat):
            violated(f"enqueue of {message.payload[:20]!r} in {queue} was acknowledged as {number}, which is {birth}")

    def delivered(self, delivery: Delivery, *, with_state: bool) -> None:
        """Check a delivery: its lease is durable and current, and it is the message that was sent."""
        books, number = self.books, numbered(delivery.id)
        entry = books.entry(delivery.queue, number)
        if entry is None or entry.token != delivery.token:
            violated(f"delivered {delivery}, which is {entry or books.fates.get(number)}")
        message = books.births[number].message
        state = None if entry.state is None else books.states[entry.state]
        expected = (
            *(message.payload, dict(message.headers), entry.path, entry.attempts, entry.expires_ms, entry.enqueued_ms),
            *(message.correlation_id or delivery.id, entry.cost, PRIORITY_NAMES[entry.priority], entry.failures),
            *(state if with_state else None, None if entry.state is None else number_text(entry.state)),
            *(entry.dead_reason, entry.deadline_ms, entry.order_key),
        )
        got = (
            *(delivery.payload, delivery.headers, path_of(delivery.fairness_key), delivery.attempt),
            *(delivery.expires_ms, delivery.enqueued_ms, delivery.correlation_id, delivery.cost, delivery.priority),
            *(delivery.failures, delivery.state, delivery.state_etag),
            None if delivery.dead is None else delivery.dead.reason,
            delivery.deadline_ms,
            delivery.order_key,
        )
        if got != expected:
            violated(f"delivered {got}, expected {expected}")
        if (delivery.time_left_ms or 0) < 0:
            violated(f"delivered {-(delivery.time_left_ms or 0)} ms after its deadline: {delivery}")

    def is_prompt(self, delivery: Delivery) -> bool:
        """Return whether a delivered message should start at once: it has a deadline, a throttle or a limit."""
        entry = self.books.entry(delivery.queue, numbered(delivery.id))
        return entry is not None and self.rules.is_prompt(self.books.queues[delivery.queue], entry, if_told=False)

    def has_prompt(self, queue: str) -> bool:
        """Return whether a waiting message of a queue may be one that should start at once."""
        book = self.books.queues.get(queue)
        waiting = [entry for entry in book.entries.values() if not entry.token] if book is not None else []
        return any(self.rules.is_prompt(book, entry, if_told=True) for entry in waiting if book is not None)

    def holds(self, delivery: Delivery, now_ms: int) -> bool:
        """Return whether a lease is still valid."""
        entry = self.books.entry(delivery.queue, numbered(delivery.id))
        return entry is not None and entry.token == delivery.token and entry.expires_ms > now_ms

    def told_ended(self, deliveries: Sequence[Delivery], outcome: Outcome, now_ms: int, *how: str) -> None:
        """Check the answer to an ack or a nack: an accepted one ended this very lease in this way.

        A lease that was refused must not be one that lasts.
        """
        results = outcome if isinstance(outcome, list) else [outcome] * len(deliveries)
        for delivery, result in zip(deliveries, results, strict=True):
            note = self.books.leases[delivery.token]
            if not isinstance(result, FairlaneError):
                if not note.ended.startswith(how) or delivery.token in self._accepted:
                    violated(f"{how} of {delivery.id} under lease {delivery.token} was accepted; it is {note}")
                self._accepted.add(delivery.token)
            elif isinstance(result, GONE) and self.holds(delivery, now_ms):
                violated(f"{how} of {delivery.id} under lease {delivery.token} was refused: {result!r}")
            elif isinstance(result, OutOfOrder) and how != ("acked",):
                violated(f"{how} of {delivery.id} was refused as out of order: {result!r}")
            self._told_cancelled_lease(delivery, result, now_ms)

    def _told_cancelled_lease(self, delivery: Delivery, result: object, now_ms: int) -> None:
        """Check that the holder of a cancelled message is told so, and the holder of no other."""
        note = self.books.finished.get(numbered(delivery.id))
        # Not in this commit: the request may have been decided a moment before.
        is_cancelled = note is not None and note.ending == "cancelled" and note.at < self.books.commit_first
        if isinstance(result, MessageCancelled) and self.books.fates.get(numbered(delivery.id)) != "removed:cancelled":
            violated(f"{delivery.id} was said to be cancelled; it is {self.books.fates.get(numbered(delivery.id))}")
        if isinstance(result, MessageNotFound) and is_cancelled and note is not None and note.until_ms > now_ms:
            violated(f"{delivery.id} was cancelled, and its holder was told: {result!r}")

    def told_acked(
        self, deliveries: Sequence[Delivery], results: Sequence[bytes | None] | None, outcome: Outcome
    ) -> None:
        """Check that an acknowledgement that was accepted has kept the result that was sent with it."""
        for at, delivery in enumerate(deliveries if isinstance(outcome, list) else ()):
            note = self.books.finished.get(numbered(delivery.id))
            sent = None if results is None else results[at]
            if isinstance(outcome, list) and outcome[at] is None and note is not None and note.result != sent:
                violated(f"{delivery.id} was acknowledged with {sent!r}, and {note} is kept")

    def told_result(self, message_id: str, outcome: Outcome, now_ms: int) -> None:
        """Check what a caller is told of a message."""
        told_status(self.books, message_id, outcome, now_ms)

    def has_hook(self, queue: str) -> bool:
        """Return whether a queue has, or may just have had, a script that decides about failures."""
        book = self.books.queues.get(queue)
        if book is None or book.policy.on_failure is not None:
            return True
        return max(book.set_at, book.made_at) >= self.books.commit_first

    def told_extended(self, deliveries: Sequence[Delivery], outcome: Outcome, now_ms: int) -> None:
        """Check the answer to an extend."""
        results = outcome if isinstance(outcome, list) else [outcome] * len(deliveries)
        for delivery, result in zip(deliveries, results, strict=True):
            note = self.books.leases[delivery.token]
            if isinstance(result, int):
                if result not in note.extended and not (result == NEVER_MS and note.claim is not None):
                    violated(f"extend of {delivery.id} under lease {delivery.token} was accepted; it is {note}")
            elif isinstance(result, GONE) and self.holds(delivery, now_ms):
                violated(f"extend of {delivery.id} under lease {delivery.token} was refused: {result!r}")

    def told_state(
        self, delivery: Delivery, state: bytes | None, etag: str | None, outcome: Outcome, now_ms: int
    ) -> None:
        """Check the answer to a write of workflow state."""
        note = self.books.leases[delivery.token]
        if isinstance(outcome, str):
            number = numbered(outcome)
            if number not in note.states or self.books.states[number] != state:
                violated(f"state of {delivery.id} was accepted as {number} under lease {delivery.token}; it is {note}")
        elif isinstance(outcome, GONE) and self.holds(delivery, now_ms):
            violated(f"state of {delivery.id} under lease {delivery.token} was refused: {outcome!r}")
        elif isinstance(outcome, StateMismatch):
            entry = self.books.entry(delivery.queue, numbered(delivery.id))
            now = None if entry is None or entry.state is None else entry.state
            if (
                entry is not None
                and etag == (None if now is None else number_text(now))
                and (now or 0) < self.books.commit_first
            ):
                violated(f"state of {delivery.id} with etag {etag} was refused: {outcome!r}")

    def told_cancelled(self, queue: str, ids: Sequence[str], outcome: Outcome, *, only_waiting: bool) -> None:
        """Check the answer to a cancel."""
        for message_id, result in zip(ids, outcome if isinstance(outcome, list) else (), strict=False):
            number = numbered(message_id)
            if result is None and self.books.fates.get(number) != "removed:cancelled":
                violated(f"cancel of {number} was accepted; it is {self.books.fates.get(number)}")
            entry = self.books.entry(queue, number)
            is_leased = entry is not None and entry.token and entry.expires_ms != NEVER_MS
            if isinstance(result, NotPending) and not only_waiting and is_leased and not self._is_recent(entry):
                violated(f"cancel of {number} was refused as leased; it is {entry}")
            if isinstance(result, MessageNotFound) and entry is not None and entry.line < self.books.commit_first:
                violated(f"cancel of {number} was refused as unknown; it is {entry}")

    def _is_recent(self, entry: Entry | None) -> bool:
        """Return whether the lease of a message belongs to the latest commit."""
        return entry is not None and entry.token >= self.books.commit_first

    def told_missing(self, queue: str, outcome: Outcome) -> None:
        """Check that a queue that was not found does not exist."""
        if isinstance(outcome, QueueNotFound) and not self.books.is_new(queue):
            violated(f"queue {queue} was not found; it is there")

    def told_not_created(self, queue: str, outcome: Outcome, *, since: int) -> None:
        """Check that a request that creates missing queues was not refused although a template creates this one.

        One that waits, for a script or for messages, while its queue is removed may be refused; ``since`` is the next
        sequence when it was made.
        """
        is_refused = isinstance(outcome, QueueNotFound) and " does not exist" in outcome.cause
        if is_refused and self.books.removed_at.get(queue, 0) < since and self.books.is_auto_created(queue):
            violated(f"queue {queue} was not found; its template creates it")

    # ---------------------------------------------------------------------------------------------------- the broker

    def check_ledger(self, ledger: Ledger, now_ms: int) -> None:
        """Check that the broker's memory equals what is durable."""
        books = self.books
        if ledger.next_sequence != books.next_sequence or ledger.config != books.config:
            violated(
                f"the ledger is at {ledger.next_sequence} with {ledger.config}, the books at {books.next_sequence}"
            )
        if ledger.queues.keys() != books.queues.keys():
            violated(f"the ledger has queues {list(ledger.queues)}, the books {list(books.queues)}")
        for name, book in books.queues.items():
            _check_queue(ledger.queues[name], book, now_ms)
        _check_numbers(ledger, books, now_ms)
        check_redrives(books, (redrive.image() for redrive in ledger.redrives.values()))
        check_finished(ledger.finished, books)
        check_fan_outs(books, ledger.fan_outs.images(), books.at_ms)
        alive = list(books.alive())
        check_uploads(ledger, books)
        if (ledger.messages, ledger.size) != (len(alive), books.size()):
            violated(f"the ledger counts {ledger.messages} messages, {ledger.size} bytes; true is {len(alive)}")
        if {name: (reader.position, reader.at_ms) for name, reader in ledger.readers.items()} != books.readers:
            violated(f"the ledger has readers {ledger.readers}, the books {books.readers}")
        segments = [(one.first, one.end, one.first_ms, one.last_ms, one.size) for one in ledger.segments]
        if segments != books.segments or ledger.trimmed != books.trimmed:
            violated(f"the ledger has segments {segments} from {ledger.trimmed}, the books {books.segments}")

    def check_store(self) -> None:
        """Check that the store holds exactly the bodies that messages refer to."""
        kept, wanted = set(self._disk.kept_bodies()), self.books.wanted_bodies()
        if kept != wanted:
            violated(f"bodies that leak: {sorted(kept - wanted)}; that are missing: {sorted(wanted - kept)}")

    def check_fold(self, now_ms: int) -> None:
        """Check that folding the journal from its base gives the broker's memory."""
        self.check_ledger(recover(self._disk.journal(), Limits())[0], now_ms)

    def check_counts(self) -> None:
        """Check that every enqueued message still exists or has a recorded end."""
        counts = self.books.counts
        alive = sum(1 for _ in self.books.alive())
        if (
            counts["Enqueued"] + counts["Staged"] != alive + counts["acked"] + counts["removed"]
            or len(self.books.births) != counts["Enqueued"] + counts["Staged"]
        ):
            violated(f"{counts['Enqueued']} came in, {alive} are there, gone are {counts}")

    def check_timely(self, now_ms: int) -> None:
        """Check that nothing is overdue after a cycle: no expired lease and no passed deadline."""
        check_present(self.books, self.heard, self._opened_ms, now_ms)
        check_heard(self.books, self._opened_ms, now_ms)
        check_swept(self.books, now_ms)
        check_silent(self.books, self._opened_ms, now_ms, self.journal.settings.upload_silence_ms)
        check_settled(self.books, self.journal.settings, now_ms)
        for entry in (entry for book in self.books.queues.values() for entry in book.entries.values()):
            if entry.token and entry.expires_ms <= now_ms:
                violated(f"at {now_ms} message {entry.number} is leased, until {entry.expires_ms}")
            if not entry.token and entry.deadline_ms is not None and entry.deadline_ms < now_ms:
                violated(f"at {now_ms} message {entry.number} waits beyond its deadline {entry.deadline_ms}")

    def check_served(self, queue: str, now_ms: int, who: str) -> None:
        """Check that no consumer waits while a message is available."""
        entry = self.rules.eligible(queue, now_ms)
        if entry is not None:
            violated(f"{who} waits at queue {queue} at {now_ms}, and so does message {entry}")


def _check_queue(queue: Queue, book: QueueBook, now_ms: int) -> None:
    """Check that a queue equals its book."""
    name = book.name
    found = (queue.policy, queue.created_ms, queue.refused, queue.is_paused, set(map(path_of, queue.paused_keys)))
    if found != (book.policy, book.created_ms, book.refused, book.is_paused, book.paused):
        violated(f"queue {name} is {found}, should be {book}")
    _check_messages(queue.messages, book.entries)
    in_order = (
        {} if queue.leased_groups is None else {number for group in queue.leased_groups.values() for number in group}
    )
    if book.is_strict and in_order != {entry.number for entry in book.entries.values() if entry.token}:
        violated(f"queue {name} knows the leases of {in_order} in its strict order")
    _check_messages(queue.staged, book.staged)
    if pictures_of_sinks(queue.sinks.values()) != pictures_of_sinks(book.sinks.values()):
        violated(f"queue {name} has sinks {queue.sinks}, should be {book.sinks}")
    if pictures_of_schedules(queue.schedules.values()) != pictures_of_schedules(book.schedules.values()):
        violated(f"queue {name} has schedules {queue.schedules}, should be {book.schedules}")
    if queue.staged_size != sum(entry.size for entry in book.staged.values()):
        violated(f"queue {name} counts {queue.staged_size} bytes that are staged")
    leased = sum(1 for entry in book.entries.values() if entry.token)
    size = sum(entry.size for entry in book.entries.values())
    if sorted(map(picture_of_consumer, queue.consumers.values())) != sorted(
        map(picture_of_consumer, book.consumers.values())
    ):
        violated(f"queue {name} has consumers {queue.consumers}, should be {book.consumers}")
    claimed = sum(1 for entry in book.entries.values() if entry.token and entry.expires_ms == NEVER_MS)
    if (queue.leased, queue.claimed, queue.size) != (leased, claimed, size):
        violated(f"queue {name} counts {queue.leased} leased, {queue.size} bytes; true is {leased}, {size}")
    dedups = {named(name): known for name, known in queue.dedups.items() if known[1] > now_ms}
    if dedups != {dedup_id: known for dedup_id, known in book.dedups.items() if known[1] > now_ms}:
        violated(f"queue {name} remembers {dedups}, should be {book.dedups}")
    holders = [entry for entry in book.entries.values() if entry.unique_key is not None]
    uniques = {(entry.path[0], entry.unique_key): entry.number for entry in holders}
    if {named(name): number for name, number in queue.uniques.items()} != uniques:
        violated(f"queue {name} has unique keys {queue.uniques}, should be {uniques}")


def _check_numbers(ledger: Ledger, books: Books, now_ms: int) -> None:
    """Check that the ledger finds every number that counts, under the message that has it, and no others."""
    counts = 0
    for book in books.queues.values():
        for name, (number, until_ms) in book.numbered.items():
            if until_ms <= now_ms:
                continue
            counts += 1
            caller = ledger.producer_numbers.get(name.caller)
            known = None if caller is None else caller.find(book.name, name.producer)
            found = None if known is None else known.sequence_of(name.number, now_ms)
            if found != number:
                violated(
                    f"queue {book.name} knows {name} as {found} instead of {number}, which counts until {until_ms}"
                )
    runs = [run for caller in ledger.producer_numbers.values() for _, run in caller.all_runs()]
    if sum(run.count for run in runs if run.until_ms > now_ms) != counts:
        violated(f"the ledger has {runs}, and {counts} numbers should count")


def _check_messages(messages: Mapping[int, Message], entries: dict[int, Entry]) -> None:
    if messages.keys() != entries.keys():
        violated(f"lost: {sorted(entries.keys() - messages.keys())}; risen: {sorted(messages.keys() - entries.keys())}")
    for number, entry in entries.items():
        found = _picture(messages[number])
        if found != picture_of_entry(entry):
            violated(f"message {number} is {found}, should be {picture_of_entry(entry)}")


def _picture(message: Message) -> tuple[object, ...]:
    after = message.after
    errors = () if after is None else tuple((one.at_ms, one.attempt, one.reason, one.error) for one in after.errors)
    return (
        *(message.number, message.queue.name, message.body_number, message.size, path_of(message.key)),
        *(message.weight, message.cost, int(message.priority), message.throttles, message.due_ms, message.deadline_ms),
        *(
            None if after is None else after.cap,
            message.enqueued_ms,
            message.joined,
            message.attempts,
            message.failures,
        ),
        *(message.token, message.expires_ms, message.owner, errors, None if after is None else after.origin),
        *(None if after is None else after.dead_reason, 0 if after is None else after.dead_ms),
        *(None if after is None else after.state, message.correlation_id, 0 if after is None else after.expiries),
        *(
            (0, None, None, 0)
            if after is None
            else (after.late_token, after.max_attempts, after.visibility_ms, after.dead_at)
        ),
        *(None if after is None else after.result_ttl_ms, message.leased_ms),
        () if message.pieces is None else tuple(message.pieces.numbers),
        None if after is None else after.order_key,
        None if after is None else after.unique_key,
    )
