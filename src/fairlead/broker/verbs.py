"""Every verb of the broker, for threads. Made from ``verbs_aio`` by ``tools/sync_verbs.py``: change that.

Durability is the same for all verbs: what a call has returned is durable; what it has refused has not happened. If a
call raises ``StoreFailed`` it may have happened or not. Calls are carried out in the order they are made.

Verbs that end in ``_many`` judge each item on its own and return one result for each: what was asked for, or the error.
The others raise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, Unpack, cast

from fairlead.broker import views
from fairlead.broker.engine import Engine
from fairlead.broker.journal_reading import JournalSlice, ReaderView, read_journal, reader_views
from fairlead.broker.redrives import DeadLetterFilter, RedriveView
from fairlead.broker.requests import Read, Reply, Request, Waiter
from fairlead.broker.views import Explained, QueueView
from fairlead.core import commands
from fairlead.core.checks import text_fault, whole_fault
from fairlead.core.commands import NackIntent
from fairlead.errors import FairleadError, InvalidArgument
from fairlead.model import limits
from fairlead.model.message import Delivery, Key, MessageTerms, MessageView, NewMessage, Receipt
from fairlead.model.policy import QueuePolicy, policy_from
from fairlead.ports.hooks import EnqueueQuestion, FailureQuestion, HookStatistics, HookTrial

T = TypeVar("T")
ENQUEUE_WAIT_MS = 30_000
_EVERYTHING = DeadLetterFilter()


class Leased(Protocol):
    """What has the right to act on a leased message: a ``Delivery`` or a ``Receipt``."""

    @property
    def id(self) -> str:
        """The message."""

    @property
    def token(self) -> int:
        """The fencing token of the lease."""


class Verbs(ABC):
    """The verbs; how a call gets to the engine and its answer back is left to the faces."""

    _engine: Engine

    @abstractmethod
    def _ask(self, make: Callable[[Reply], Any]) -> Any:  # noqa: ANN401 - what a verb answers depends on the verb
        """Submit what is made with a reply, and return the answer to it."""

    def _do(self, command: commands.Command, *, wait_ms: int = 0) -> Any:  # noqa: ANN401 - see _ask
        return self._ask(lambda reply: Request(command, reply, wait_ms))

    def _read(self, ask: Callable[[], T]) -> T:
        return cast("T", self._ask(lambda reply: Read(ask, reply)))

    # ---------------------------------------------------------------------------------------------------------- queues

    def create_queue(
        self, queue: str, policy: QueuePolicy | Mapping[str, object] | None = None, *, by: str | None = None
    ) -> None:
        """Make a queue, and its dead-letter queue ``<queue>.dlq`` with it.

        Raises:
            QueueExists, InvalidArgument, HookInvalid: it was not made.
        """
        self._do(commands.CreateQueue(queue=queue, policy=_policy(policy, QueuePolicy()), by=by))

    def update_queue(self, queue: str, policy: QueuePolicy | Mapping[str, object], *, by: str | None = None) -> None:
        """Change the policy of a queue while it is in use: as a whole, or only the fields of a mapping.

        Raises:
            QueueNotFound, InvalidArgument, HookInvalid: the policy before stays.
        """
        before = (self.queue(queue)).policy
        self._do(commands.UpdateQueue(queue=queue, policy=_policy(policy, before), by=by))

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
            lambda: [views.queue_view(engine.ledger, engine.dispatcher, name) for name in sorted(engine.ledger.queues)]
        )

    def queue(self, queue: str) -> QueueView:
        """Return a queue in short.

        Raises:
            QueueNotFound: there is none of this name.
        """
        engine = self._engine
        return self._read(lambda: views.queue_view(engine.ledger, engine.dispatcher, queue))

    def inspect(self, queue: str) -> QueueView:
        """Return a queue with its fairness keys and throttles. Takes time in proportion to its messages.

        Raises:
            QueueNotFound: there is none of this name.
        """
        engine = self._engine
        return self._read(
            lambda: views.queue_details(engine.ledger, engine.schedule, engine.dispatcher, queue, engine.now_ms())
        )

    # -------------------------------------------------------------------------------------------------------- messages

    def enqueue(
        self, queue: str, message: NewMessage | bytes, *, wait_ms: int = ENQUEUE_WAIT_MS, **terms: Unpack[MessageTerms]
    ) -> str:
        """Enqueue a message, or a payload with the fields of ``NewMessage`` as terms. Returns the message's id.

        ``wait_ms`` is how long it may wait for room where the queue's policy is to wait.

        Raises:
            QueueNotFound, InvalidArgument, PayloadTooLarge: it can't be enqueued.
            QueueFull, KeyFull, GlobalFull: there is no room.
        """
        results = self.enqueue_many(queue, [_message(message, terms)], wait_ms=wait_ms)
        return _only(results)

    def enqueue_many(
        self, queue: str, messages: Sequence[NewMessage], *, wait_ms: int = ENQUEUE_WAIT_MS
    ) -> list[str | FairleadError]:
        """Enqueue messages, each on its own, in this order and in one commit. Returns an id or an error for each.

        Raises:
            QueueNotFound, InvalidArgument: none was enqueued.
        """
        command = commands.Enqueue(queue=queue, messages=messages)
        return cast("list[str | FairleadError]", self._do(command, wait_ms=wait_ms))

    def lease(
        self,
        queue: str,
        count: int = 1,
        *,
        wait_ms: int = 0,
        visibility_ms: int | None = None,
        owner: str | None = None,
        with_state: bool = False,
    ) -> list[Delivery]:
        """Lease up to ``count`` messages, in fair order, waiting for the first of them if need be.

        Returns as soon as there is one; an empty list when none came in time. The leases are durable. Consumers that
        wait are served first come, first served. A call that is cancelled loses nothing: its leases are given back.

        Raises:
            QueueNotFound, InvalidArgument, TooManyWaiters: nothing was leased.
        """
        check_taking(count, wait_ms, visibility_ms, owner)

        def make(reply: Reply) -> Waiter:
            return Waiter(
                queue=queue,
                count=count,
                reply=reply,
                visibility_ms=visibility_ms,
                owner=owner,
                with_state=with_state,
                wait_ms=wait_ms,
            )

        return cast("list[Delivery]", self._ask(make))

    def ack(
        self,
        delivery: Delivery,
        *,
        cost: int | None = None,
        forward: Mapping[str, Sequence[NewMessage]] | None = None,
    ) -> list[str]:
        """Let a leased message be done, at its true cost if told; it and its workflow state are gone.

        With ``forward``, messages by queue are enqueued in the same commit: all of it happens or nothing. Returns
        their ids, in order.

        Raises:
            MessageNotFound, LeaseMismatch: it was not acked, and nothing enqueued.
            QueueNotFound, InvalidArgument, PayloadTooLarge, QueueFull, KeyFull, GlobalFull: one of those to be
                forwarded was refused; it was not acked, and nothing enqueued.
        """
        parts = [commands.Enqueue(queue=target, messages=list(news)) for target, news in (forward or {}).items()]
        costs = None if cost is None else [cost]
        command = commands.Ack(queue=delivery.queue, receipts=[delivery], costs=costs, forward=parts)  # type: ignore[list-item] # it has id and token
        outcome = self._do(command)
        if parts:
            return [message_id for ids in outcome for message_id in ids]
        _only(outcome)
        return []

    def ack_many(
        self, queue: str, leased: Sequence[Leased], *, costs: Sequence[int | None] | None = None
    ) -> list[FairleadError | None]:
        """Let leased messages be done, each on its own. Returns None or an error for each.

        Raises:
            QueueNotFound, InvalidArgument: none was acked.
        """
        command = commands.Ack(queue=queue, receipts=leased, costs=costs)  # type: ignore[arg-type] # they have id and token
        return cast("list[FairleadError | None]", self._do(command))

    def nack(
        self, delivery: Delivery, *, error: str = "", intent: NackIntent = "failure", delay_ms: int | None = None
    ) -> None:
        """Give a leased message back, because it failed, to defer it, or with intent ``dead`` to the dead letters.

        A failed one waits by the hook's or the policy's backoff unless a delay is given, and after ``max_attempts``
        failures it is a dead letter. A deferred one counts as no failure. Either goes to the back of its line.

        Raises:
            MessageNotFound, LeaseMismatch, InvalidArgument: it was not given back.
        """
        results = self.nack_many(delivery.queue, [delivery], error=error, intent=intent, delay_ms=delay_ms)
        _only(results)

    def nack_many(
        self,
        queue: str,
        leased: Sequence[Leased],
        *,
        error: str = "",
        intent: NackIntent = "failure",
        delay_ms: int | None = None,
    ) -> list[FairleadError | None]:
        """Give leased messages back, each on its own; see ``nack``. Returns None or an error for each.

        Raises:
            QueueNotFound, InvalidArgument: none was given back.
        """
        command = commands.Nack(
            queue=queue,
            receipts=leased,  # type: ignore[arg-type] # they have id and token
            intent=intent,
            delay_ms=delay_ms,
            error=error,
        )
        return cast("list[FairleadError | None]", self._do(command))

    def extend(self, delivery: Delivery, *, visibility_ms: int | None = None) -> int:
        """Let a lease last so long from now, by default the queue's visibility timeout. Returns when it ends.

        Raises:
            MessageNotFound, LeaseMismatch, InvalidArgument: it was not extended.
        """
        results = self.extend_many(delivery.queue, [delivery], visibility_ms=visibility_ms)
        return _only(results)

    def extend_many(
        self, queue: str, leased: Sequence[Leased], *, visibility_ms: int | None = None
    ) -> list[int | FairleadError]:
        """Let leases last so long from now, each on its own. Returns when it ends, or an error, for each.

        Raises:
            QueueNotFound, InvalidArgument: none was extended.
        """
        command = commands.Extend(queue=queue, receipts=leased, visibility_ms=visibility_ms)  # type: ignore[arg-type] # they have id and token
        return cast("list[int | FairleadError]", self._do(command))

    def cancel(self, queue: str, message_id: str) -> None:
        """Take out a message that is not leased.

        Raises:
            QueueNotFound, MessageNotFound, NotPending: it was not taken out.
        """
        _only(self.cancel_many(queue, [message_id]))

    def cancel_many(self, queue: str, message_ids: Sequence[str]) -> list[FairleadError | None]:
        """Take out messages that are not leased, each on its own. Returns None or an error for each.

        Raises:
            QueueNotFound: there is no such queue.
        """
        command = commands.Cancel(queue=queue, ids=message_ids)
        return cast("list[FairleadError | None]", self._do(command))

    def get(self, queue: str, message_id: str, *, with_body: bool = True) -> MessageView:
        """Return a message without leasing it.

        Raises:
            QueueNotFound, MessageNotFound: there is none.
        """
        engine = self._engine

        def ask() -> MessageView:
            message = views.known_message(engine.ledger, queue, message_id)
            return views.views_of(engine.bodies, [message], with_body=with_body, now_ms=engine.now_ms())[0]

        return self._read(ask)

    def peek(
        self,
        queue: str,
        count: int = 10,
        *,
        after: str | None = None,
        wanted: DeadLetterFilter = _EVERYTHING,
        with_body: bool = False,
    ) -> list[MessageView]:
        """Return messages without leasing them, in the order they came to the queue, after one of them if told.

        For dead letters, and for others as far as it makes sense, a filter says which are wanted.

        Raises:
            QueueNotFound, InvalidArgument: it can't be answered.
        """
        _require(whole_fault("count", count, least=1, most=limits.BATCH_MAX))
        engine = self._engine

        def ask() -> list[MessageView]:
            return views.peek(
                engine.ledger,
                engine.bodies,
                queue,
                limit=count,
                after=after,
                wanted=wanted,
                with_body=with_body,
                now_ms=engine.now_ms(),
            )

        return self._read(ask)

    def explain(self, queue: str, message_id: str) -> Explained:
        """Tell why a message waits, in words and in fields.

        Raises:
            QueueNotFound, MessageNotFound: there is none.
        """
        engine = self._engine
        return self._read(
            lambda: views.explain(engine.ledger, engine.schedule, engine.dispatcher, queue, message_id, engine.now_ms())
        )

    # -------------------------------------------------------------------------------------------------- workflow state

    def get_state(self, queue: str, message_id: str) -> tuple[bytes | None, str | None]:
        """Return the workflow state of a message and its etag; None twice where there is none.

        Raises:
            QueueNotFound, MessageNotFound: there is no such message.
        """
        engine = self._engine

        def ask() -> tuple[bytes | None, str | None]:
            message = views.known_message(engine.ledger, queue, message_id)
            return engine.bodies.states([message])[0], views.message_view(message, engine.now_ms()).state_etag

        return self._read(ask)

    def set_state(self, delivery: Delivery, state: bytes | None, *, etag: str | None) -> str | None:
        """Write the workflow state of a leased message, or with None remove it. Returns the etag of the new version.

        It is written only if the present version still is ``etag``, None for there being none. State stays with the
        message through nack, expiry, dead letters and back, and goes with its ack.

        Raises:
            MessageNotFound, LeaseMismatch, StateMismatch, InvalidArgument: it was not written.
        """
        receipt = Receipt(delivery.id, delivery.token)
        command = commands.SetState(queue=delivery.queue, receipt=receipt, state=state, etag=etag)
        return cast("str | None", self._do(command))

    # ---------------------------------------------------------------------------------------------------------- config

    def set_config(self, key: str, value: str | None, *, by: str | None = None) -> None:
        """Set a config value, or with None remove it. It acts at once on everything that waits.

        ``throttle:NAME:rate`` and ``throttle:NAME:burst`` are throttles; ``weight:QUEUE:KEY`` and ``cap:QUEUE:KEY`` are
        weights and caps of fairness keys. All else is for hooks.

        Raises:
            InvalidArgument: nothing was changed.
        """
        self._do(commands.SetConfig(key=key, value=value, by=by))

    def get_config(self, key: str) -> str | None:
        """Return a config value, None if there is none."""
        return self._read(lambda: self._engine.ledger.config.get(key))

    def list_config(self, prefix: str = "") -> dict[str, str]:
        """Return the config values whose keys begin with a prefix, by key."""
        return self._read(
            lambda: {key: value for key, value in sorted(self._engine.ledger.config.items()) if key.startswith(prefix)}
        )

    def throttles(self) -> list[views.ThrottleView]:
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

    def read_journal(self, after: int = 0, *, count: int = 10_000) -> JournalSlice:
        """Return about so many events of the journal after a position, and the position they reach to.

        Only what is durable is returned. Read on from the position returned; it grows even where there are no events.

        Raises:
            JournalTrimmed: the journal does not reach back so far any more.
            InvalidArgument: the position is none.
        """
        _require(whole_fault("count", count, least=1, most=1_000_000))
        engine = self._engine
        return self._read(lambda: read_journal(engine.store, engine.ledger, after=after, count=count))

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


# --------------------------------------------------------------------------------------------------------------- inside


def _policy(policy: QueuePolicy | Mapping[str, object] | None, before: QueuePolicy) -> QueuePolicy:
    if isinstance(policy, QueuePolicy):
        return policy
    try:
        return policy_from(dict(policy or {}), base=before)
    except ValueError as error:
        raise InvalidArgument(str(error)) from error


def _message(message: NewMessage | bytes, terms: MessageTerms) -> NewMessage:
    if isinstance(message, NewMessage):
        if terms:
            raise InvalidArgument("Say the terms in the message, or give a payload and terms, not both.")
        return message
    try:
        return NewMessage(payload=message, **terms)
    except TypeError as error:
        raise InvalidArgument(f"A message has no such term: {error}.") from error


def _only(results: Sequence[T | FairleadError]) -> T:
    result = results[0]
    if isinstance(result, FairleadError):
        raise result
    return result


def _require(fault: str | None) -> None:
    if fault is not None:
        raise InvalidArgument(fault)


def check_taking(count: int, wait_ms: int, visibility_ms: int | None, owner: str | None) -> None:
    """Refuse what a consumer can't ask for.

    Raises:
        InvalidArgument: a value is out of range.
    """
    _require(whole_fault("count", count, least=1, most=limits.BATCH_MAX))
    _require(whole_fault("wait_ms", wait_ms, least=0, most=limits.TIMESPAN_MS_MAX))
    if visibility_ms is not None:
        _require(whole_fault("visibility_ms", visibility_ms, least=1, most=limits.TIMESPAN_MS_MAX))
    if owner is not None:
        _require(text_fault("An owner", owner, most=limits.OWNER_LENGTH_MAX))
