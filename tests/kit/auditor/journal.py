"""Enters commits into the books as they become durable, and the records that are not about messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from fairlane.journal import codec
from fairlane.journal import records as r
from fairlane.ports.store import Commit
from tests.kit.auditor.books import Books, Entry, QueueBook, Sent, path_of, violated
from tests.kit.auditor.claims import picture_of_consumer
from tests.kit.auditor.fan_outs import check_fan_outs
from tests.kit.auditor.messages import MessageRecords
from tests.kit.auditor.order import check_prefixes
from tests.kit.auditor.redrives import check_redrives
from tests.kit.auditor.rules import Rules
from tests.kit.auditor.schedules import pictures_of_schedules
from tests.kit.auditor.sinks import pictures_of_sinks
from tests.kit.auditor.uploads import pictures_in_books, pictures_of_uploads


class JournalAuditor(MessageRecords):
    """Enters every durable commit into the books."""

    def __init__(self, books: Books, rules: Rules, sent: dict[bytes, Sent]) -> None:
        super().__init__(books, rules, sent)
        self._entering: dict[type[r.Record], Callable[[Any, int], None]] = {
            r.Enqueued: self._enqueued,
            r.Staged: self._staged,
            r.Leased: self._leased,
            r.Extended: self._extended,
            r.Acked: self._acked,
            r.Returned: self._returned,
            r.Dead: self._dead,
            r.Removed: self._removed,
            r.Redriven: self._redriven,
            r.RedriveStarted: self._redrive_started,
            r.RedriveEnded: self._redrive_ended,
            r.StateSet: self._state_set,
            r.StateRemoved: self._state_removed,
            r.ResultsSwept: self._results_swept,
            r.ConsumerSet: self._consumer_set,
            r.ConsumerRemoved: self._consumer_removed,
            r.ClaimsEnded: self._claims_ended,
            r.Published: self._published,
            r.SinkSet: self._sink_set,
            r.SinkRemoved: self._sink_removed,
            r.UploadBegun: self._upload_begun,
            r.PieceStored: self._piece_stored,
            r.UploadDropped: self._upload_dropped,
            r.PiecesDeleted: self._pieces_deleted,
            r.QueueSet: self._queue_set,
            r.QueueRemoved: self._queue_removed,
            r.QueuePaused: self._queue_paused,
            r.ConfigSet: self._config_set,
            r.RefusedMessages: self._refused,
            r.ScheduleSet: self._schedule_set,
            r.ScheduleRemoved: self._schedule_removed,
            r.SchedulePaused: self._schedule_paused,
            r.ScheduleFired: self._schedule_fired,
            r.ScheduleMissed: self._schedule_missed,
            r.FannedOut: self._fanned_out,
            r.ReaderSet: self._reader_set,
            r.Opened: self._opened,
            r.Skipped: self._skipped,
            r.Sealed: self._sealed,
            r.Trimmed: self._trimmed,
            r.Carried: self._carried,
            r.Baseline: self._baseline,
        }

    def enter(self, commit: Commit) -> None:
        """Enter a commit."""
        books = self._books
        page = codec.decode(commit.page)
        self.digest.update(commit.page)
        if commit.sequence != books.next_sequence:
            violated(f"a commit begins at {commit.sequence}, the last ended at {books.next_sequence}")
        if page.at_ms < books.at_ms:
            violated(f"time runs backwards in the journal: {books.at_ms} to {page.at_ms}")
        if commit.base < books.base or commit.trim > commit.base:
            violated(f"base {books.base} to {commit.base}, trim {commit.trim}")
        books.base, books.commit_first, books.at_ms = commit.base, commit.sequence, page.at_ms
        self._bodies, self._dropped = dict(commit.bodies), frozenset(commit.dropped)
        for record in page.records:
            if record.sequence != books.next_sequence:
                violated(f"record {record} does not follow on {books.next_sequence}")
            name = type(record).__name__
            books.counts[name] += record.count
            self._entering[type(record)](record, page.at_ms)
            books.next_sequence += record.count
        self._check_overstayed()
        self._check_fan_outs()
        check_prefixes(books)
        if not any(isinstance(record, r.Opened) for record in page.records):  # an opening comes before its first cycle
            self._check_expiries(page.at_ms)

    # --------------------------------------------------------------------------------------------------- the others

    def _state_set(self, record: r.StateSet, at_ms: int) -> None:
        entry = self._books.must_have(record.queue, record.number, "state")
        self._check_held(entry, at_ms, "state")
        entry.state = record.sequence
        self._books.states[record.sequence] = self._bodies[record.sequence]
        self._books.leases[entry.token].states.append(record.sequence)

    def _state_removed(self, record: r.StateRemoved, at_ms: int) -> None:
        entry = self._books.must_have(record.queue, record.number, "state removal")
        self._check_held(entry, at_ms, "state removal")
        entry.state = None

    def _queue_set(self, record: r.QueueSet, at_ms: int) -> None:
        book = self._books.queues.get(record.queue)
        if book is None:
            self._books.queues[record.queue] = QueueBook(record.queue, record.policy, at_ms, record.sequence)
        else:
            if record.policy.order == "strict" and not book.is_strict:
                book.strict_at = record.sequence
            book.policy = record.policy
            book.set_at = record.sequence

    def _queue_removed(self, record: r.QueueRemoved, at_ms: int) -> None:
        book = self._books.queues[record.queue]
        for entry in (*(book.entries[number] for number in sorted(book.entries)), *book.staged.values()):
            self._books.take_out(entry, "removed:queue", at_ms)
        self._note_gone(record.queue)
        for number in [upload.number for upload in self._books.uploads.values() if upload.queue == record.queue]:
            self._books.drop_upload(number)
        gone = [number for number, one in self._books.fan_outs.items() if one.queue == record.queue]
        for number in gone:
            del self._books.fan_outs[number]
        del self._books.queues[record.queue]
        self._books.removed_at[record.queue] = record.sequence

    def _queue_paused(self, record: r.QueuePaused, _at_ms: int) -> None:
        book = self._books.queues[record.queue]
        if record.key is None:
            book.is_paused = record.is_paused
        else:
            (book.paused.add if record.is_paused else book.paused.discard)(path_of(record.key))

    def _config_set(self, record: r.ConfigSet, at_ms: int) -> None:
        before = self._books.config.get(record.key)
        if record.value is None:
            self._books.config.pop(record.key, None)
        else:
            self._books.config[record.key] = record.value
        self._books.config_at[record.key] = record.sequence
        self._rules.note_config(record.key, at_ms)
        self._note_expiry(record, before, at_ms)

    def _note_expiry(self, record: r.ConfigSet, before: str | None, at_ms: int) -> None:
        """Check that a restored value is the one that was covered, and that it is restored in time."""
        temporary = self._books.temporary
        covered = temporary.pop(record.key, None)
        if record.reason == "expiry":
            if covered is None or covered[0] > at_ms or covered[1] != record.value:
                violated(f"{record} restores at {at_ms} what {covered} has covered")
        elif record.expires_ms is not None:
            temporary[record.key] = (record.expires_ms, before if covered is None else covered[1])

    def _check_expiries(self, at_ms: int) -> None:
        late = {key: until for key, until in self._books.temporary.items() if until[0] <= at_ms}
        if late:
            violated(f"at {at_ms} these config values have expired, and are not restored: {late}")

    def _refused(self, record: r.RefusedMessages, _at_ms: int) -> None:
        book = self._books.queues[record.queue]
        rows = list(zip(record.messages, record.costs, strict=True))
        if len({*record.keys}) != len(rows) or any(messages < 1 or cost < messages for messages, cost in rows):
            violated(f"refusals are recorded as {record}")
        book.refused += sum(record.messages)

    def _reader_set(self, record: r.ReaderSet, _at_ms: int) -> None:
        if record.position is None:
            self._books.readers.pop(record.name, None)
        else:
            self._books.readers[record.name] = (record.position, record.at_ms)

    def _opened(self, _record: r.Opened, _at_ms: int) -> None:
        """Do nothing: buckets start empty when the store is opened, which is before this record is written."""

    def _skipped(self, _record: r.Skipped, _at_ms: int) -> None:
        """Do nothing: the numbers are used up, which ``enter`` counts."""

    def _sealed(self, record: r.Sealed, _at_ms: int) -> None:
        self._books.segments.append((record.first, record.sequence, record.first_ms, record.last_ms, record.size))

    def _trimmed(self, record: r.Trimmed, at_ms: int) -> None:
        books = self._books
        for name, (position, said_ms) in books.readers.items():
            if position < record.to - 1 and at_ms - said_ms <= self.settings.reader_hold_ms:
                violated(f"reader {name} at {position} is passed by a trim to {record.to}, {at_ms - said_ms} ms later")
        self._check_trimmed_segments(record, at_ms)
        late = sorted(name for name, (position, _) in books.readers.items() if position < record.to - 1)
        if record.to > books.base or sorted(record.passed) != late:
            violated(f"trimmed to {record.to} with base {books.base}, passing {record.passed}, late are {late}")
        books.trimmed = record.to
        books.segments = [segment for segment in books.segments if segment[1] > record.to]

    def _check_trimmed_segments(self, record: r.Trimmed, at_ms: int) -> None:
        """Check that each trimmed segment is too old, or that the journal is too large."""
        policies = [book.policy.journal_retention_ms or 0 for book in self._books.queues.values()]
        retention_ms = max(self.settings.journal_retention_ms, *policies, 0)
        size = sum(segment[4] for segment in self._books.segments)
        for segment in self._books.segments:
            if segment[1] <= record.to:
                if at_ms - segment[3] <= retention_ms and size <= self.settings.journal_bytes_max:
                    violated(f"segment {segment} is trimmed at {at_ms}, of {size} bytes, retention {retention_ms}")
                size -= segment[4]

    def _carried(self, record: r.Carried, _at_ms: int) -> None:
        for image in record.messages:
            staged = self._books.queues[image.queue].staged.get(image.number)
            entry = staged or self._books.must_have(image.queue, image.number, "carrying")
            if picture_of_image(image) != picture_of_entry(entry):
                violated(f"carried as {picture_of_image(image)}, is {picture_of_entry(entry)}")
        for number, count in Counter(image.chunk for image in record.messages).items():
            if self._books.chunks[number] != count:
                violated(f"{count} messages of chunk {number} are carried of {self._books.chunks[number]}")
        self._check_carried(record.finished)

    def _baseline(self, record: r.Baseline, at_ms: int) -> None:
        books = self._books
        queues = {
            image.name: (
                *(image.policy, image.created_ms, image.is_paused, set(map(path_of, image.paused_keys))),
                image.refused,
                sorted(map(picture_of_consumer, image.consumers)),
                pictures_of_sinks(image.sinks),
                pictures_of_uploads(image.uploads),
                pictures_of_schedules(image.schedules),
            )
            for image in record.queues
        }
        known = {
            book.name: (
                *(book.policy, book.created_ms, book.is_paused, book.paused),
                book.refused,
                sorted(map(picture_of_consumer, book.consumers.values())),
                pictures_of_sinks(book.sinks.values()),
                pictures_in_books(books, book.name),
                pictures_of_schedules(book.schedules.values()),
            )
            for book in books.queues.values()
        }
        if queues != known or record.config != books.config:
            violated(f"the baseline says {queues}, {record.config}; true is {known}, {books.config}")
        temporary = {image.key: (image.expires_ms, image.before) for image in record.temporary}
        if temporary != books.temporary:
            violated(f"the baseline says that {temporary} expire; true is {books.temporary}")
        check_redrives(books, record.redrives)
        check_fan_outs(books, record.fan_outs, at_ms)
        if record.discarded != books.discarded:
            violated(f"the baseline says that {record.discarded} are to be deleted; true is {books.discarded}")


def picture_of_entry(entry: Entry) -> tuple[object, ...]:
    """Return a comparable picture of a message in the books."""
    return (
        *(entry.number, entry.queue, entry.chunk, entry.size, entry.path, entry.weight, entry.cost, entry.priority),
        *(entry.throttles, entry.due_ms, entry.deadline_ms, entry.cap, entry.enqueued_ms, entry.line, entry.attempts),
        *(entry.failures, entry.token, entry.expires_ms, entry.owner, tuple(entry.errors), entry.origin),
        *(entry.dead_reason, entry.dead_ms, entry.state, entry.correlation_id, entry.expiries, entry.late_token),
        *(entry.attempts_max, entry.visibility_ms, entry.dead_at, entry.ttl_ms, entry.leased_ms, entry.pieces),
        entry.order_key,
        entry.unique_key,
    )


def picture_of_image(image: r.MessageImage) -> tuple[object, ...]:
    """Return a comparable picture of a message in a record."""
    errors = tuple(image.errors)
    return (
        *(image.number, image.queue, image.chunk, image.size, path_of(image.key), image.weight, image.cost),
        *(image.priority, tuple(image.throttles), image.due_ms, image.deadline_ms, image.cap, image.enqueued_ms),
        *(image.joined, image.attempts, image.failures, image.token, image.expires_ms, image.owner, errors),
        *(image.origin, image.dead_reason, image.dead_ms, image.state, image.correlation_id, image.expiries),
        *(image.late_token, image.max_attempts, image.visibility_ms, image.dead_at),
        *(image.result_ttl_ms, image.leased_ms),
        () if image.pieces is None else tuple(image.pieces.numbers),
        image.order_key,
        image.unique_key,
    )
