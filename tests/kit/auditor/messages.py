"""Enters records about messages into the books, and checks that each one is legal."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlane.broker.settings import Settings
from fairlane.journal import records as r
from fairlane.model.message import NewMessage
from fairlane.model.partitions import queue_of
from fairlane.model.policy import QueuePolicy
from tests.kit.auditor.books import (
    Birth,
    Books,
    Entry,
    LeaseNote,
    ProducerNumber,
    QueueBook,
    Sent,
    prefixes,
    unpack,
    violated,
)
from tests.kit.auditor.claims import ClaimRecords
from tests.kit.auditor.fan_outs import BEFORE, FanOutRecords
from tests.kit.auditor.finished import FinishedRecords
from tests.kit.auditor.order import check_acked, check_leased
from tests.kit.auditor.redrives import RedriveRecords
from tests.kit.auditor.rules import Rules
from tests.kit.auditor.schedules import ScheduleRecords
from tests.kit.auditor.sinks import TERM_NAMES, SinkRecords, rows_of
from tests.kit.auditor.terms import expected_terms
from tests.kit.auditor.uploads import UploadRecords
from tests.kit.simulation.hooks import ON_ENQUEUE, failure_answer


class MessageRecords(
    FanOutRecords, ClaimRecords, SinkRecords, RedriveRecords, FinishedRecords, UploadRecords, ScheduleRecords
):
    """Enters records about messages."""

    def __init__(self, books: Books, rules: Rules, sent: dict[bytes, Sent]) -> None:
        self._books = books
        self._rules = rules
        self._sent = sent
        self._bodies: dict[int, bytes] = {}
        self._dropped: frozenset[int] = frozenset()
        self._overstayed: dict[int, str] = {}
        """What is wrong with messages that a commit returned too often, unless it removes them as well."""
        self.settings = Settings()
        self.digest = hashlib.sha256()

    def _entries(self, record: r.OfMessages) -> list[Entry]:
        if len(set(record.numbers)) != len(record.numbers):
            violated("a record speaks twice of a message:", record)
        return [self._books.must_have(record.queue, number, type(record).__name__) for number in record.numbers]

    # --------------------------------------------------------------------------------------------------- coming in

    def _enqueued(self, record: r.Enqueued, at_ms: int) -> None:
        book = self._books.queues[record.queue]
        for at, (entry, message) in enumerate(self._taken_in(record, at_ms)):
            dedup_id = None if record.dedup_ids is None else record.dedup_ids[at]
            self._check_dedup(book, record, entry, dedup_id, message, at_ms)
            self._check_unique(book, entry)
            self._check_number(book, record, at, message, at_ms)
            self._books.births[entry.number] = Birth(book.name, message, dedup_id, at_ms)
            entry.is_fresh = entry.due_ms is None
            self._books.add(entry)
        if record.cause is not None:
            self._take_places(record)
        self._check_limits(book, rows_of(record.terms))

    def _staged(self, record: r.Staged, at_ms: int) -> None:
        book = self._books.queues[record.queue]
        for entry, message in self._taken_in(record, at_ms):
            self._books.births[entry.number] = Birth(book.name, message, None, at_ms)
            entry.line, entry.is_fresh = 0, False
            book.staged[entry.number] = entry
        self._check_limits(book, rows_of(record.terms))
        if record.sink:
            self._stage(record, at_ms)

    def _taken_in(self, record: r.Enqueued | r.Staged, at_ms: int) -> list[tuple[Entry, NewMessage]]:
        """Return the new messages of a record with what was sent, and check that they are equal."""
        books = self._books
        book = books.queues[record.queue]
        rows = rows_of(record.terms)
        found = []
        for start, end in pairwise([*record.chunks, len(record.sizes)]):
            chunk = record.sequence + start
            if chunk not in self._bodies:
                violated(f"the bodies of chunk {chunk} were not committed with it")
            books.chunks[chunk] = end - start
            bodies = unpack(self._bodies[chunk])
            for at, (headers, correlation_id, inner) in zip(range(start, end), bodies, strict=True):
                number = record.sequence + at
                upload = None if isinstance(record, r.Staged) or record.uploads is None else record.uploads[at]
                payload, pieces = (inner, ()) if upload is None else self._adopted(book.name, upload, inner)
                named = {BEFORE: headers.pop(BEFORE)} if isinstance(record, r.Staged) and BEFORE in headers else {}
                sent = self._sent_by_schedule(book, headers) or self._sent.get(payload, Sent("", NewMessage(), 0))
                message = sent.message
                if (sent.queue, dict(message.headers), message.correlation_id) != (book.name, headers, correlation_id):
                    violated(f"message {number} in queue {book.name} is not as sent: {payload[:30]!r}, {sent}")
                self._check_terms(book, sent, rows[at], at_ms)
                if record.sizes[at] != len(payload):
                    violated(f"message {number} is said to have {record.sizes[at]} bytes instead of {len(payload)}")
                entry = Entry(number, book.name, chunk, len(payload), at_ms, **rows[at], line=number)
                entry.correlation_id, entry.pieces = correlation_id, pieces
                found.append((entry, replace(message, headers={**message.headers, **named}) if named else message))
        return found

    @staticmethod
    def _check_terms(book: QueueBook, sent: Sent, row: dict[str, Any], at_ms: int) -> None:
        """Check the terms of a new message. If the policy changed while the producer waited, its hook may have, too."""
        expected = [expected_terms(book.name, book.policy, sent.message, at_ms)]
        if book.set_at >= sent.sequence:
            for script in (None, ON_ENQUEUE):
                policy = msgspec.structs.replace(book.policy, on_enqueue=script)
                expected.append(expected_terms(book.name, policy, sent.message, at_ms))
        if row not in expected:
            violated(f"{sent} has terms {row} instead of {expected[0]}")

    def _check_dedup(
        self, book: QueueBook, record: r.Enqueued, entry: Entry, dedup_id: str | None, message: NewMessage, at_ms: int
    ) -> None:
        number = entry.number
        if dedup_id != message.dedup_id:
            violated(f"message {number} has dedup id {dedup_id!r} instead of {message.dedup_id!r}")
        if dedup_id is None:
            return
        name = (entry.path[0], dedup_id)  # a dedup id is its tenant's alone
        known = book.dedups.get(name)
        if known is not None and known[1] > at_ms:
            violated(f"message {number} repeats {known[0]}: dedup id {dedup_id!r} counts until {known[1]}, not {at_ms}")
        if record.dedup_until_ms != at_ms + book.policy.dedup_window_ms:
            violated(f"dedup id {dedup_id!r} counts until {record.dedup_until_ms}")
        book.dedups[name] = (number, record.dedup_until_ms)

    @staticmethod
    def _check_unique(book: QueueBook, entry: Entry) -> None:
        """Check that no other message of the tenant in the queue has the unique key of a new message."""
        name = (entry.path[0], entry.unique_key)
        for other in book.entries.values() if entry.unique_key is not None else ():
            if (other.path[0], other.unique_key) == name:
                violated(f"message {entry.number} has unique key {entry.unique_key!r}, as {other.number} has")

    def _check_number(self, book: QueueBook, record: r.Enqueued, at: int, message: NewMessage, at_ms: int) -> None:
        """Check that a message has a number that it was sent under, and that no other has this number and counts."""
        sent, window_ms = self._sent[message.payload].numbers, book.policy.dedup_window_ms
        if record.numbered is None:
            if None not in sent and window_ms:
                violated(f"message {record.sequence + at} was sent under {sent}, and the journal has no number")
            return
        numbers = record.numbered.numbers
        number = numbers[at] if len(numbers) > 1 else numbers[0] + at
        name = ProducerNumber(record.numbered.caller, record.numbered.producer, number)
        known = book.numbered.get(name)
        if name not in sent or record.dedup_until_ms != at_ms + window_ms:
            violated(f"message {record.sequence + at} is {name} until {record.dedup_until_ms}, and was sent as {sent}")
        if known is not None and known[1] > at_ms:
            violated(f"message {record.sequence + at} repeats {known[0]}, which is {name} as well, until {known[1]}")
        book.numbered[name] = (record.sequence + at, record.dedup_until_ms)

    def _check_limits(self, book: QueueBook, rows: list[dict[str, Any]]) -> None:
        policy = book.policy
        entries = (*book.entries.values(), *book.staged.values())
        everything = list(self._books.alive())
        amounts = [
            ("waiting_max", len(entries), policy.waiting_max),
            ("waiting_bytes_max", sum(entry.size for entry in entries), policy.waiting_bytes_max),
            ("all waiting_max", len(everything), self.settings.waiting_max),
            ("all waiting_bytes_max", sum(entry.size for entry in everything), self.settings.waiting_bytes_max),
        ]
        for path in {row["path"] for row in rows}:
            sizes = [entry.size for entry in entries if entry.path == path]
            amounts.append((f"key_waiting_max of {path}", len(sizes), policy.key_waiting_max))
            amounts.append((f"key_waiting_bytes_max of {path}", sum(sizes), policy.key_waiting_bytes_max))
        for name, amount, most in amounts:
            if most is not None and amount > most:
                violated(f"queue {book.name} has {amount} after an enqueue, {name} is {most}")

    # ------------------------------------------------------------------------------------------------------ leases

    def _leased(self, record: r.Leased, at_ms: int) -> None:
        book = self._books.queues[record.queue]
        self._excuse(record.queue, record.numbers)
        check_leased(book, record, self._entries(record))
        for token, entry in enumerate(self._entries(record), record.sequence):
            if entry.token:
                violated(f"message {entry.number} is leased a second time, under {token} and {entry.token}")
            self._rules.check_hand_out(book, entry, at_ms)
            self._books.leave_lane(entry)
            end_ms = record.expires_ms if record.ends_ms is None else record.ends_ms[token - record.sequence]
            if end_ms != record.expires_ms and end_ms != at_ms + (entry.visibility_ms or 0):
                violated(f"the lease of message {entry.number} ends at {end_ms}, not by {entry.visibility_ms}")
            entry.token, entry.expires_ms, entry.owner = token, end_ms, record.owner
            entry.attempts += 1
            entry.leased_ms = at_ms
            book.in_use.update(prefixes(entry.path))
            self._books.leases[token] = LeaseNote(entry.number, record.queue, record.owner, claim=record.claim)
        if record.claim is not None:
            self._enter_claim(record, record.claim, at_ms)

    def _check_held(self, entry: Entry, at_ms: int, what: str) -> None:
        if not entry.token or entry.expires_ms <= at_ms:
            violated(f"{what} of message {entry.number}, lease {entry.token} until {entry.expires_ms}, at {at_ms}")

    def _extended(self, record: r.Extended, at_ms: int) -> None:
        for entry in self._entries(record):
            self._check_held(entry, at_ms, "extend")
            if self._books.leases[entry.token].claim is not None:
                violated(f"the lease of message {entry.number}, which is claimed, is given an end")
            entry.expires_ms = record.expires_ms
            self._books.leases[entry.token].extended.append(record.expires_ms)

    def _acked(self, record: r.Acked, at_ms: int) -> None:
        self._remember(record, self._entries(record), "acked", at_ms)
        book = self._books.queues[record.queue]
        policy = book.policy
        check_acked(book, record, self._entries(record))
        for entry in self._entries(record):
            if record.is_late:
                if not policy.late_ack or entry.token or not entry.late_token:
                    violated(f"late ack of message {entry.number}, lease {entry.token}, before {entry.late_token}")
                self._books.leases[entry.late_token].ended = "acked"
            else:
                self._check_held(entry, 0 if policy.late_ack else at_ms, "ack")
            self._books.take_out(entry, "acked", at_ms)

    def _returned(self, record: r.Returned, at_ms: int) -> None:
        book = self._books.queues[record.queue]
        policy = book.policy
        for at, entry in enumerate(self._entries(record)):
            if not (book.is_strict and record.reason == "defer"):  # a lease behind another ends with that
                self._check_ended(entry, record.reason, at_ms)
            if record.reason != "defer":
                entry.fail(at_ms, record.reason, record.errors[at] if record.errors is not None else "")
                self._check_goes_round(entry, policy, record.reason)
            due_ms = (record.due_ms[at] if record.due_ms is not None else 0) or None
            if due_ms is not None and record.reason in ("expiry", "release") and policy.on_failure is None:
                violated(f"message {entry.number} waits until {due_ms} after a lease that was lost")
            self._books.leases[entry.token].due_ms = due_ms
            entry.late_token = entry.token if record.reason in ("expiry", "release") else 0
            self._books.end_lease(entry, f"returned:{record.reason}", at_ms)
            entry.due_ms, entry.returned_at = due_ms, record.sequence + at
            if not book.is_strict:
                entry.line = entry.returned_at

    def _check_goes_round(self, entry: Entry, policy: QueuePolicy, reason: str) -> None:
        """Check that a message that failed again, or was lost, may be delivered again."""
        if not entry.queue.endswith(".dlq") and all(self._verdicts(entry, policy, reason).values()):
            counts = f"{entry.failures} failures, {entry.expiries} expiries"
            self._overstayed[entry.number] = f"message {entry.number} goes round after {counts}"

    def _check_overstayed(self) -> None:
        """Check, at the end of a commit, that nothing is there that was returned too often.

        A purge of leased messages returns them before it removes them.
        """
        overstayed, self._overstayed = self._overstayed, {}
        for number, fault in overstayed.items():
            if number not in self._books.fates:
                violated(fault)

    def _verdicts(self, entry: Entry, policy: QueuePolicy, reason: str) -> dict[str, bool]:
        """Return, for each rule that may end a message, whether it does.

        A hook decides if there is one, and has an answer, and could be asked: not where a read failed.
        """
        if reason == "failure":
            most = policy.max_attempts if entry.attempts_max is None else entry.attempts_max
            verdicts = {"max_attempts": 0 < most <= entry.failures}
        else:
            verdicts = {"max_expiries": 0 < policy.max_expiries <= entry.expiries}
        headers = self._books.births[entry.number].message.headers
        answer = failure_answer(headers, entry.failures + entry.expiries) if policy.on_failure is not None else None
        if answer is not None:
            verdicts["hook"] = answer.is_dead
        return verdicts

    def _check_ended(self, entry: Entry, reason: str, at_ms: int) -> None:
        if not entry.token or (reason == "expiry") != (entry.expires_ms <= at_ms):
            violated(f"{reason} of message {entry.number}, lease {entry.token} until {entry.expires_ms}, at {at_ms}")

    # ------------------------------------------------------------------------------------- dead letters and removal

    def _dead(self, record: r.Dead, at_ms: int) -> None:
        policy = self._books.queues[record.queue].policy
        for at, entry in enumerate(self._entries(record)):
            if record.reason == "deadline":
                self._check_late(entry, at_ms)
                if policy.deadline_action != "dlq":
                    violated(f"message {entry.number} is a dead letter by its deadline, against the policy")
            elif record.reason == "members":
                if entry.number not in self._books.fan_outs or entry.token:
                    violated(f"message {entry.number} is dead for its members: {entry}")
            else:
                self._check_ended(entry, record.ended or "", at_ms)
                entry.fail(at_ms, record.ended or "", record.errors[at] if record.errors is not None else "")
                self._books.end_lease(entry, f"dead:{record.reason}", at_ms)
                verdicts = self._verdicts(entry, policy, record.ended or "")
                if record.reason != "requested" and not verdicts.get(record.reason):
                    violated(f"message {entry.number} is dead after {entry.failures} failures by {record.reason}")
            entry.late_token = 0
            entry.origin, entry.dead_reason, entry.dead_ms = record.queue, record.reason, at_ms
            entry.unique_key = None
            self._books.settle_member(entry.number, is_done=False)
            entry.due_ms = entry.deadline_ms = None
            entry.line = entry.dead_at = record.sequence + at
            named = policy.dead_letter_queue
            expected = named if named is not None and named in self._books.queues else f"{record.queue}.dlq"
            if (record.target or f"{record.queue}.dlq") != expected:
                violated(f"message {entry.number} died into {record.target}, expected {expected}")
            if not expected.endswith(".dlq"):
                entry.failures = entry.expiries = 0
            self._books.move(entry, expected)

    @staticmethod
    def _check_late(entry: Entry, at_ms: int) -> None:
        if entry.token or entry.deadline_ms is None or entry.deadline_ms >= at_ms:
            violated(f"message {entry.number} is late at {at_ms}? deadline {entry.deadline_ms}, lease {entry.token}")

    def _removed(self, record: r.Removed, at_ms: int) -> None:
        if record.reason == "unstaged":
            for number in record.numbers:
                self._books.take_out(self._books.queues[record.queue].staged[number], "removed:unstaged", at_ms)
            return
        policy = self._books.queues[record.queue].policy
        self._remember(record, self._entries(record), f"removed:{record.reason}", at_ms)
        for entry in self._entries(record):
            if entry.token:
                violated(f"message {entry.number} is {record.reason} while leased under {entry.token}")
            if record.reason == "deadline":
                self._check_late(entry, at_ms)
            if record.reason == "dropped" and not policy.backpressure.startswith("drop"):
                violated(f"message {entry.number} is dropped, against the policy")
            self._books.take_out(entry, f"removed:{record.reason}", at_ms)

    def _redriven(self, record: r.Redriven, at_ms: int) -> None:
        target = self._books.queues[record.target]
        rows = rows_of(record.terms)
        self._note_redriven(record)
        for at, entry in enumerate(self._entries(record)):
            is_letter = entry.origin is not None or record.queue.endswith(".dlq")
            if entry.token or not is_letter or record.target.endswith(".dlq"):
                violated(f"message {entry.number} is redriven to {record.target} under lease {entry.token}")
            expected = expected_terms(target.name, target.policy, self._as_sent(entry), at_ms)
            if rows[at] != expected:
                violated(f"message {entry.number} is redriven with terms {rows[at]} instead of {expected}")
            for name in TERM_NAMES:
                setattr(entry, name, rows[at][name])
            entry.attempts = entry.failures = entry.expiries = entry.late_token = 0
            entry.errors, entry.origin, entry.dead_reason, entry.dead_ms, entry.dead_at = [], None, None, 0, 0
            entry.line = record.sequence + at
            self._books.move(entry, record.target)

    def _as_sent(self, entry: Entry) -> NewMessage:
        origin = entry.origin or entry.queue.removesuffix(".dlq")
        book = self._books.queues.get(origin)
        own = f"{queue_of(origin)}/" if book is not None and book.policy.throttle_scope == "queue" else ""
        return NewMessage(
            headers=self._books.births[entry.number].message.headers,
            fairness_key=entry.path,
            weight=entry.weight or None,
            cost=entry.cost,
            priority=("high", "normal", "low")[entry.priority],
            throttles=tuple(name.removeprefix(own) for name in entry.throttles),
            max_attempts=entry.attempts_max,
            visibility_timeout_ms=entry.visibility_ms,
            result_ttl_ms=entry.ttl_ms,
            order_key=entry.order_key,
        )
