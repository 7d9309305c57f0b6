"""Replies: the results of a cycle are sent once they are durable; if the cycle failed, its requests are refused.

A reply whose caller gave up, or that was answered already, is skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fairlane.broker.cycle import Cycle
from fairlane.broker.requests import AttachedConsumer, Read, Waiter
from fairlane.broker.waiting.consumers import NO_MESSAGES, WaitingConsumers
from fairlane.broker.waiting.fetches import Awaited
from fairlane.broker.waiting.peeks import PeekSearch
from fairlane.broker.waiting.producers import WaitingEnqueues
from fairlane.broker.waiting.sinks import WaitingSinks
from fairlane.errors import FairlaneError
from fairlane.verbs.verb import Reply

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine

_log = logging.getLogger("fairlane.broker")


def answer_all(answers: Iterable[tuple[Reply, object]]) -> None:
    """Give outcomes; an error is a refusal."""
    for reply, outcome in answers:
        if reply.done():
            continue
        if isinstance(outcome, FairlaneError):
            reply.set_exception(outcome)
        else:
            reply.set_result(outcome)


def answer_read(engine: Engine, read: Read) -> None:
    """Answer a question about the present, unless the store has been lost meanwhile."""
    reply: Reply = read.reply
    if reply.done():
        return
    try:
        engine.store.check_owned()
        answer = read.ask()
    except FairlaneError as error:
        reply.set_exception(error)
    except Exception as error:  # noqa: BLE001 - a bug of ours; reading changes nothing, so all goes on
        reply.set_exception(engine.internal_error(error))
    else:
        if isinstance(answer, Awaited):
            engine.fetches.wait(answer, read)
        elif isinstance(answer, PeekSearch):
            engine.peeks.add(answer, reply)
        else:
            reply.set_result(answer)


def guarded(call: Callable[..., None], *arguments: object) -> None:
    """Call code of others after a commit. Whatever it raises is logged and undoes nothing."""
    try:
        call(*arguments)
    except Exception:  # noqa: BLE001 - see above
        _log.exception("A callback failed after a commit; the commit stands.")


def refuse_all(replies: Iterable[Reply | None], error: FairlaneError) -> None:
    """Refuse everyone who waits for a reply."""
    for reply in replies:
        if reply is not None and not reply.done():
            reply.set_exception(error)


def refuse_cycle(cycle: Cycle, error: FairlaneError) -> None:
    """Refuse the requests of a cycle that has failed."""
    refuse_all((reply for reply, _ in cycle.answers), error)
    refuse_all((read.reply for read in cycle.reads), error)
    refuse_all((watcher.reply for watcher in cycle.watchers), error)
    refuse_all((call.reply for call in cycle.claims), error)
    if cycle.current is not None:
        refuse_all((cycle.current.reply,), error)
    refuse_all((hand_out.taker.reply for hand_out in cycle.hand_outs if isinstance(hand_out.taker, Waiter)), error)


def refuse_everyone(
    consumers: WaitingConsumers, producers: WaitingEnqueues, sinks: WaitingSinks, error: FairlaneError
) -> None:
    """Refuse everyone who waits and end all consumers: another process serves them from now on."""
    refuse_all((waiter.reply for waiter in consumers.everybody()), error)
    refuse_all((reply for reply, _ in producers.dismiss()), error)
    refuse_all((reply for reply, _ in sinks.dismiss()), error)
    for consumer in consumers.all_attached():
        consumer.ending = error
        consumers.detach(consumer)
        guarded(consumer.deliver, [])


def release_everyone(consumers: WaitingConsumers, producers: WaitingEnqueues, sinks: WaitingSinks) -> None:
    """Answer everyone who waits with what they have so far, and end all consumers: the broker closes."""
    answer_all((waiter.reply, NO_MESSAGES) for waiter in consumers.everybody())
    answer_all(producers.dismiss())
    answer_all(sinks.dismiss())
    for consumer in consumers.all_attached():
        consumer.deliver([])


def send_away(consumers: WaitingConsumers, error: FairlaneError) -> None:
    """Refuse everyone who waits, and let attached consumers take no more; they end when the engine does."""
    refuse_all((waiter.reply for waiter in consumers.everybody()), error)
    for consumer in consumers.all_attached():
        consumer.credit = 0
        consumer.ending = error


def send_away_from(consumers: WaitingConsumers, queue: str, error: FairlaneError) -> None:
    """Refuse everyone who waits at a queue, and end its consumers now."""
    takers = consumers.dismiss(queue)
    refuse_all((taker.reply for taker in takers if isinstance(taker, Waiter)), error)
    for consumer in (taker for taker in takers if isinstance(taker, AttachedConsumer)):
        consumers.detach(consumer)
        consumer.credit = 0
        consumer.ending = error
        guarded(consumer.deliver, [])
