"""The status of messages: of those that are in the broker, and of those that have ended and are remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from fairlane.broker.views.deliveries import dead_letter_of
from fairlane.broker.views.queues import explain
from fairlane.core.finished import FinishedMessage
from fairlane.core.ledger import Ledger, Message
from fairlane.core.producer import LimitedProducer
from fairlane.errors import Forbidden, MessageNotFound
from fairlane.journal.bodies import CHUNK_COUNT_MAX
from fairlane.journal.life import MessageLife
from fairlane.model.message import Key
from fairlane.model.names import dlq_of
from fairlane.model.status import LifeStage, MembersView, ResultView, StatusView
from fairlane.model.views import Explained

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine

ENDED = "end"
"""The version of the status of a message that has ended."""


def find_message(ledger: Ledger, number: int) -> Message | None:
    """Return a message by its number alone. It takes the same time however many queues there are."""
    for first in range(number, number - CHUNK_COUNT_MAX, -1):
        chunk = ledger.chunks.get(first)
        if chunk is None:
            continue
        for plain in (chunk.queue, *chunk.others):
            for name in (plain, dlq_of(plain)):
                queue = ledger.queues.get(name)
                message = None if queue is None else queue.messages.get(number) or queue.staged.get(number)
                if message is not None:
                    return message
    return None


def check_reader(reader: LimitedProducer | None, queue: str, key: Key) -> None:
    """Raise Forbidden if a caller may not know what becomes of messages of a fairness key in a queue."""
    if reader is not None and not reader.may_read(queue, key):
        raise Forbidden(f"API key {reader.name!r} may not read the status of this message.")


def no_message(message_id: str) -> MessageNotFound:
    """Return the refusal of an id that no message has or had, as far as is known."""
    return MessageNotFound(f"Message {message_id!r:.60} is not known.")


# ---------------------------------------------------------------------------------------------------------------- views


def status_of(engine: Engine, number: int, reader: LimitedProducer | None) -> StatusView | None:
    """Return the status of a message, or None if the broker does not remember it.

    Raises:
        Forbidden: the caller may not know it.
    """
    ledger, now_ms = engine.ledger, engine.now_ms()
    message = find_message(ledger, number)
    if message is not None:
        origin = None if message.after is None else message.after.origin
        check_reader(reader, origin or message.queue.name, message.key)
        return _of_message(engine, message, now_ms)
    finished = ledger.finished.get(number, now_ms)
    if finished is None:
        return None
    check_reader(reader, finished.queue, finished.key)
    return _of_finished(ledger, finished)


_STAGED = "It is staged, and enters its queue when its batch is published."


def _of_message(engine: Engine, message: Message, now_ms: int) -> StatusView:
    dead = dead_letter_of(message)
    stage: LifeStage = "running" if message.token else "dead" if dead is not None else _waiting_stage(message, now_ms)
    view = StatusView(
        id=message.id,
        queue=message.queue.name,
        status=stage,
        fairness_key=message.key,
        enqueued_ms=message.enqueued_ms,
        attempts=message.attempts,
        failures=message.failures,
        errors=() if message.after is None else message.after.errors,
        version=f"{message.token or message.joined:x}",
        members=_members(engine.ledger, message.number),
    )
    if message.token:
        return _running(engine, message, view)
    if dead is not None:
        words = f"It is a dead letter of {dead.origin}: {dead.reason}."
        return replace(view, reason=dead.reason, words=words, finished_ms=dead.at_ms)
    if not message.joined:
        words = _STAGED if view.members is None else _words(view.members)
        return replace(view, reason="staged" if view.members is None else "members", words=words)
    explained = explain(engine.ledger, engine.schedule, engine.consumers, message.queue.name, view.id, now_ms)
    starts_ms = _starts_ms(engine, message, explained, now_ms)
    return replace(view, reason=explained.reason, words=explained.words, starts_ms=starts_ms)


def _members(ledger: Ledger, number: int) -> MembersView | None:
    found = ledger.fan_outs.by_number.get(number)
    return None if found is None else MembersView(total=found.total, done=found.done, failed=found.failed)


def _words(members: MembersView) -> str:
    left = members.total - members.done - members.failed
    return f"It waits for {left} of the {members.total} messages of its fan-out."


def _running(engine: Engine, message: Message, view: StatusView) -> StatusView:
    progress, reports = engine.progress.of(message)
    return replace(
        view,
        owner=message.owner,
        since_ms=message.leased_ms,
        expires_ms=None if message.is_claimed else message.expires_ms,
        progress=progress,
        version=f"{view.version}.{reports}",
    )


def _waiting_stage(message: Message, now_ms: int) -> LifeStage:
    if message.failures:
        return "failed"
    is_delayed = not message.joined or (message.due_ms is not None and message.due_ms > now_ms)
    return "delayed" if is_delayed else "waiting"


def _starts_ms(engine: Engine, message: Message, explained: Explained, now_ms: int) -> int | None:
    """Return when a message starts, or about when: half of those of its key that started lately had waited no longer.

    None if it waits for anything else than its turn, if that is unknown, or if it has waited longer already.
    """
    if explained.until_ms is not None:
        return explained.until_ms
    are_consumers_busy = explained.reason == "no_consumer" and message.queue.leased > 0
    if explained.reason != "turn" and not are_consumers_busy:
        return None
    waits = engine.consumers.wait_times.p50_and_p99_ms(message.queue.name, message.key, now_ms)
    starts_ms = None if waits is None else message.ready_ms + waits[0]
    return None if starts_ms is None or starts_ms < now_ms else starts_ms


def _of_finished(ledger: Ledger, finished: FinishedMessage) -> StatusView:
    return StatusView(
        id=ledger.ids.id_of(finished.number),
        queue=finished.queue,
        status=finished.ending,
        fairness_key=finished.key,
        enqueued_ms=finished.enqueued_ms,
        attempts=finished.attempts,
        reason=finished.note,
        finished_ms=finished.finished_ms,
        result_bytes=finished.size if finished.body else None,
        kept_until_ms=finished.until_ms,
        version=ENDED,
    )


def of_life(ledger: Ledger, life: MessageLife) -> StatusView | None:
    """Return the status of a message that the journal alone knows; None if the journal does not say how it ended."""
    if life.ending is None:
        return None
    return StatusView(
        id=ledger.ids.id_of(life.number),
        queue=life.queue,
        status=life.ending,
        fairness_key=life.key,
        enqueued_ms=life.enqueued_ms,
        attempts=life.attempts,
        reason=life.note,
        finished_ms=life.finished_ms,
        version=ENDED,
    )


def result_of(engine: Engine, number: int, view: StatusView) -> ResultView:
    """Return the result of a message by its status. Raises StoreCorrupt if the store has lost it."""
    finished = engine.ledger.finished.get(number, engine.now_ms()) if view.result_bytes is not None else None
    return ResultView(
        id=view.id,
        status=view.status,
        result=None if finished is None else engine.bodies.result(finished.body),
        finished_ms=view.finished_ms,
        reason=view.reason if view.is_final else None,
        errors=view.errors,
    )
