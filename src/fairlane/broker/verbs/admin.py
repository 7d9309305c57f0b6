"""Verbs for operators, for threads. Made from its twin by ``tools/sync_verbs.py``."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import cast

import msgspec

from fairlane.broker.verbs.asking import Asking
from fairlane.broker.verbs.checking import check_author, check_filter, check_keys_max, require
from fairlane.broker.views import queues as views
from fairlane.broker.views.journal import JournalSlice, read_journal, reader_views
from fairlane.core import commands
from fairlane.core.checks import text_fault, whole_fault
from fairlane.errors import InvalidArgument
from fairlane.journal.records import SegmentImage
from fairlane.model import limits
from fairlane.model.message import Key
from fairlane.model.policy import QueuePolicy, policy_from
from fairlane.model.views import (
    DeadLetterFilter,
    HookStatistics,
    HookTrial,
    QueueView,
    ReaderView,
    RedriveView,
    ThrottleView,
)
from fairlane.ports.hooks import EnqueueQuestion, FailureQuestion
from fairlane.ports.store import StoredPage

_EVERYTHING = DeadLetterFilter()


class AdminVerbs(Asking):
    """What operators do with queues, config, hooks, dead letters and the journal."""

    # ---------------------------------------------------------------------------------------------------------- queues

    def create_queue(
        self, queue: str, policy: QueuePolicy | Mapping[str, object] | None = None, *, by: str | None = None
    ) -> None:
        """Make a queue, and its dead-letter queue ``<queue>.dlq`` with it.

        Raises:
            QueueExists, InvalidArgument, HookInvalid: it was not made.
        """
        self._do(commands.CreateQueue(queue=queue, policy=_policy(policy), by=by))

    def update_queue(self, queue: str, policy: QueuePolicy | Mapping[str, object], *, by: str | None = None) -> None:
        """Change the policy of a queue while it is in use: as a whole, or only the fields of a mapping.

        Raises:
            QueueNotFound, InvalidArgument, HookInvalid: the policy before stays.
        """
        if isinstance(policy, QueuePolicy) or not isinstance(policy, Mapping):
            self._do(commands.UpdateQueue(queue=queue, policy=_policy(policy), by=by))
        else:
            self._do(commands.UpdateQueue(queue=queue, policy=QueuePolicy(), fields=policy, by=by))

    def delete_queue(self, queue: str, *, by: str | None = None) -> None:
        """Remove a queue with everything in it, its dead letters included. Consumers that wait there are refused."""
        self._do(commands.DeleteQueue(queue=queue, by=by))

    def pause(self, queue: str, *, key: Key | None = None, by: str | None = None) -> None:
        """Hand out nothing of a queue, or of one fairness key and those below it, until it is resumed."""
        self._do(commands.Pause(queue=queue, is_paused=True, key=key, by=by))

    def resume(self, queue: str, *, key: Key | None = None, by: str | None = None) -> None:
        """Undo ``pause``."""
        self._do(commands.Pause(queue=queue, is_paused=False, key=key, by=by))

    def purge(self, queue: str) -> int:
        """Remove all messages of a queue that are not leased, and return how many those were."""
        return cast("int", self._do(commands.Purge(queue=queue)))

    def queues(self) -> list[QueueView]:
        """Return all queues in short, by name."""
        engine = self._engine
        return self._read(
            lambda: [views.queue_view(engine.ledger, engine.consumers, name) for name in sorted(engine.ledger.queues)]
        )

    def queue(self, queue: str, *, keys_max: int = 0) -> QueueView:
        """Return a queue in short, or with up to ``keys_max`` of its fairness keys, those with the most messages.

        Raises:
            QueueNotFound: there is none of this name.
            InvalidArgument: so many keys are not to be had at once.
        """
        engine = self._engine
        check_keys_max(keys_max)
        if keys_max:
            return self._read(lambda: views.queue_details(engine, queue, engine.now_ms(), keys_max=keys_max))
        return self._read(lambda: views.queue_view(engine.ledger, engine.consumers, queue))

    def inspect(self, queue: str) -> QueueView:
        """Return a queue with its fairness keys and throttles. Takes time in proportion to its keys.

        Raises:
            QueueNotFound: there is none of this name.
        """
        engine = self._engine
        return self._read(lambda: views.queue_details(engine, queue, engine.now_ms()))

    # ---------------------------------------------------------------------------------------------------------- config

    def set_config(self, key: str, value: str | None, *, by: str | None = None) -> None:
        """Set a config value, or with None remove it. It acts at once on everything that waits.

        ``throttle:NAME:rate`` and ``throttle:NAME:burst`` are throttles; ``weight:QUEUE:KEY`` and ``cap:QUEUE:KEY`` are
        weights and caps of fairness keys. All else is for hooks.

        Raises:
            InvalidArgument: nothing was changed.
        """
        self._do(commands.SetConfig(values={key: value}, by=by))

    def set_config_many(self, values: Mapping[str, str | None], *, by: str | None = None) -> None:
        """Set config values, or with None remove them, in one commit: all of them or none; see ``set_config``.

        Raises:
            InvalidArgument: nothing was changed.
        """
        self._do(commands.SetConfig(values=values, by=by))

    def set_throttle(self, name: str, *, rate: float | None, burst: float | None = None, by: str | None = None) -> None:
        """Set a throttle in one commit: tokens a second, and the most it saves up. Without a rate it is lifted.

        A new one begins full. Without a burst it saves up one second's worth, at least 1.

        Raises:
            InvalidArgument: nothing was changed.
        """
        require(text_fault("A throttle", name, most=limits.THROTTLE_NAME_LENGTH_MAX))
        values = {
            f"throttle:{name}:burst": None if burst is None or rate is None else repr(burst),
            f"throttle:{name}:rate": None if rate is None else repr(rate),
        }
        self.set_config_many(values, by=by)

    def get_config(self, key: str) -> str | None:
        """Return a config value, None if there is none."""
        return self._read(lambda: self._engine.ledger.config.get(key))

    def list_config(self, prefix: str = "") -> dict[str, str]:
        """Return the config values whose keys begin with a prefix, by key."""
        return self._read(
            lambda: {key: value for key, value in sorted(self._engine.ledger.config.items()) if key.startswith(prefix)}
        )

    def throttles(self) -> list[ThrottleView]:
        """Return all throttles that have a rate, with the tokens they have now."""
        engine = self._engine
        return self._read(lambda: views.throttle_views(engine.schedule, engine.now_ms()))

    # ----------------------------------------------------------------------------------------------------------- hooks

    def try_on_enqueue(
        self, queue: str, script: str, *, headers: Mapping[str, str], payload_size: int = 0
    ) -> HookTrial:
        """Run a script on a sample, in a sandbox that is thrown away. Nothing is enqueued, no hook is changed."""
        question = EnqueueQuestion(dict(headers), payload_size)
        return self._read(lambda: self._engine.hooks.try_on_enqueue(queue, script, question))

    def try_on_failure(
        self, queue: str, script: str, *, headers: Mapping[str, str], attempts: int = 1, error: str = ""
    ) -> HookTrial:
        """Run a script on a sample, in a sandbox that is thrown away. Nothing is nacked, no hook is changed."""
        question = FailureQuestion(dict(headers), "0" * 16, attempts, error)
        return self._read(lambda: self._engine.hooks.try_on_failure(queue, script, question))

    def hook_statistics(self, queue: str) -> HookStatistics:
        """Return how the scripts of a queue have done since the broker was opened.

        Raises:
            QueueNotFound: there is none of this name.
        """
        engine = self._engine
        return self._read(lambda: engine.hooks.statistics(views.known(engine.ledger, queue).name))

    # ---------------------------------------------------------------------------------------------------- dead letters

    def redrive(
        self,
        dlq: str,
        *,
        wanted: DeadLetterFilter = _EVERYTHING,
        count: int | None = None,
        rate: float | None = None,
        is_dry_run: bool = False,
        by: str | None = None,
    ) -> RedriveView:
        """Start to move dead letters back to their queue, through its enqueue flow. ``redrive_view`` shows progress.

        Args:
            dlq: the dead-letter queue.
            wanted: which of them.
            count: how many at most.
            rate: how many a second at most.
            is_dry_run: only count them.
            by: who asks for it.

        Raises:
            QueueNotFound, NotADlq, InvalidArgument: it was not started.
        """
        check_author(by)
        check_filter(wanted)
        engine = self._engine

        def ask() -> RedriveView:
            return engine.redrives.start(
                engine.ledger,
                dlq,
                wanted=wanted,
                count=count,
                rate=rate,
                is_dry_run=is_dry_run,
                by=by,
                now_ms=engine.now_ms(),
            )

        return self._read(ask)

    def redrive_view(self, redrive_id: str) -> RedriveView:
        """Return how far a redrive is.

        Raises:
            RedriveNotFound: there is none of this id.
        """
        return self._read(lambda: self._engine.redrives.view(redrive_id))

    def redrives(self) -> list[RedriveView]:
        """Return all redrives since the broker was opened, the latest last."""
        return self._read(self._engine.redrives.views)

    def stop_redrive(self, redrive_id: str) -> RedriveView:
        """Stop a redrive. What it has moved stays moved.

        Raises:
            RedriveNotFound: there is none of this id.
        """
        engine = self._engine
        return self._read(lambda: engine.redrives.stop(redrive_id, engine.now_ms()))

    # --------------------------------------------------------------------------------------------------------- journal

    def read_journal(self, after: int = 0, *, count: int = 10_000, skips_trimmed: bool = False) -> JournalSlice:
        """Return the pages of the journal with about so many events after a position, and the position they reach to.

        Only what is durable is returned. Read on from the position returned; it grows even where there are no events.
        The first page may begin before the position asked for. ``fairlane.journal.events`` makes rows of pages.
        With ``skips_trimmed`` it is read from where it begins by now, if it does not reach back so far.

        Raises:
            JournalTrimmed: the journal does not reach back so far any more.
            InvalidArgument: the position is none.
        """
        require(whole_fault("count", count, least=1, most=1_000_000))
        engine = self._engine
        return self._read(
            lambda: read_journal(engine.store, engine.ledger, after=after, count=count, skips_trimmed=skips_trimmed)
        )

    def set_reader(self, name: str, position: int) -> None:
        """Register a reader of the journal, or say how far it is: the journal after that is kept for it.

        Raises:
            InvalidArgument: the name or the position is none.
        """
        self._do(commands.SetReader(name=name, position=position))

    def remove_reader(self, name: str) -> None:
        """Keep nothing for a reader any more.

        Raises:
            ReaderNotFound: there is none of this name.
        """
        self._do(commands.SetReader(name=name, position=None))

    def readers(self) -> list[ReaderView]:
        """Return the registered readers of the journal, and how far behind they are."""
        return self._read(lambda: reader_views(self._engine.ledger))

    def segments(self) -> list[SegmentImage]:
        """Return the sealed segments of the journal that are kept, the oldest first."""
        return self._read(lambda: list(self._engine.ledger.segments))

    def read_pages(self, after: int, *, count: int = 256) -> list[StoredPage]:
        """Return the next so many pages of the journal as they are stored, for whoever exports them."""
        engine = self._engine
        return self._read(lambda: list(islice(engine.store.pages(after), count)))


def _policy(policy: QueuePolicy | Mapping[str, object] | None) -> QueuePolicy:
    if policy is not None and not isinstance(policy, (QueuePolicy, Mapping)):
        raise InvalidArgument(f"A policy is a QueuePolicy or a mapping of its fields, not {type(policy).__name__}.")
    fields = msgspec.structs.asdict(policy) if isinstance(policy, QueuePolicy) else dict(policy or {})
    try:
        return policy_from(fields)
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
