"""Answering: what a cycle came to is told once it is durable, and refused when it has failed.

Whoever has given up, or has been answered already, is passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from fairlane.broker.cycle import Cycle
from fairlane.broker.requests import Read, Reply, Waiter
from fairlane.broker.waiting.consumers import NO_MESSAGES
from fairlane.broker.waiting.dispatcher import Dispatcher
from fairlane.broker.waiting.producers import WaitingProducers
from fairlane.broker.waiting.sinks import WaitingSinks
from fairlane.errors import FairlaneError
from fairlane.ports.store import Store

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


def reply_to(question: Read, store: Store) -> None:
    """Look, if the store is still ours, and tell what was seen."""
    if question.reply.done():
        return
    try:
        store.check_owned()
        answer = question.ask()
    except Exception as error:  # noqa: BLE001 - whoever asks gets it
        question.reply.set_exception(error)
    else:
        question.reply.set_result(answer)


def guarded(call: Callable[..., None], *arguments: object) -> None:
    """Call somebody else's code after a commit: what it raises is its own affair, and undoes nothing."""
    try:
        call(*arguments)
    except Exception:  # noqa: BLE001 - see above
        _log.exception("Something that was told of a commit failed.")


# ----------------------------------------------------------------------------------------------------------- refusing


def refuse_all(replies: Iterable[Reply | None], error: FairlaneError) -> None:
    """Refuse everybody who waits for a reply."""
    for reply in replies:
        if reply is not None and not reply.done():
            reply.set_exception(error)


def refuse_cycle(cycle: Cycle, error: FairlaneError) -> None:
    """Refuse the requests of a cycle that has failed."""
    refuse_all((reply for reply, _ in cycle.answers), error)
    refuse_all((question.reply for question in cycle.questions), error)
    refuse_all((request.reply for request in cycle.claims), error)
    if cycle.current is not None:
        refuse_all((cycle.current.reply,), error)
    refuse_all((hand_out.taker.reply for hand_out in cycle.hand_outs if isinstance(hand_out.taker, Waiter)), error)


def refuse_everybody(
    dispatcher: Dispatcher, enqueues: WaitingProducers, stages: WaitingSinks, error: FairlaneError
) -> None:
    """Let everybody go who waits, since it is for another process to serve them."""
    refuse_all((waiter.reply for waiter in dispatcher.everybody()), error)
    refuse_all((reply for reply, _ in enqueues.dismiss()), error)
    refuse_all((reply for reply, _ in stages.dismiss()), error)
    for consumers in list(dispatcher.consumers.values()):
        for consumer in list(consumers):
            consumer.ending = error
            dispatcher.detach(consumer)
            guarded(consumer.deliver, [])


def send_home(dispatcher: Dispatcher, enqueues: WaitingProducers, stages: WaitingSinks) -> None:
    """Let everybody go who waits, with what they have, since the broker closes."""
    answer_all((waiter.reply, NO_MESSAGES) for waiter in dispatcher.everybody())
    answer_all(enqueues.dismiss())
    answer_all(stages.dismiss())
    for consumers in dispatcher.consumers.values():
        for consumer in consumers:
            consumer.deliver([])
