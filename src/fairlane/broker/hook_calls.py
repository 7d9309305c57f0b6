"""Requests and hooks: hooks answer before a request is decided, and learn when a queue's scripts change.

What a hook answers, and what the dice say, is given to the decision. So it depends on nothing but the ledger, the
request, what is given and the instant, and neither recovery nor a simulation ever runs a script.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from fairlane.broker.bodies import Bodies
from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Call
from fairlane.core.checks import message_fault
from fairlane.core.commands import DeleteEmptyQueue, Given
from fairlane.core.ledger import Ledger
from fairlane.errors import FairlaneError, HookInvalid, InvalidArgument, QueueNotFound
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.message import NewMessage
from fairlane.model.names import dlq_of, id_of, number_of
from fairlane.model.policy import QueuePolicy, policy_from
from fairlane.ports.entropy import Entropy
from fairlane.ports.hooks import EnqueueQuestion, FailureQuestion, Hooks
from fairlane.verbs.leases import Forward, Nack
from fairlane.verbs.queues import CreateQueue, DeleteQueue, UpdateQueue

_DIE = 1000
_log = logging.getLogger("fairlane.broker")


def run_call(executor: Executor, call: Call, cycle: Cycle) -> object:
    """Ask the hooks about a request, execute it, and return its outcome."""
    request, given = call.request, call.given if call.by is None else replace(call.given, by=call.by)
    calls = executor.hook_calls
    if isinstance(request, Nack):
        given = calls.given_for_failures(executor.ledger, request, given, cycle.now_ms)
    elif isinstance(request, Forward):
        about, now_ms = calls.given_for_messages, cycle.now_ms
        parts = {queue: about(executor.ledger, queue, news, now_ms, given) for queue, news in request.messages.items()}
        given = replace(given, parts=parts)
    elif isinstance(request, (CreateQueue, UpdateQueue)):
        return _set_queue(executor, request, given, cycle)
    outcome: object = executor.execute(request, cycle, given)
    if isinstance(request, (DeleteQueue, DeleteEmptyQueue)) and outcome and not isinstance(outcome, FairlaneError):
        for name in (request.queue, dlq_of(request.queue)):
            calls.hooks.remove(name)
            executor.consumers.dismiss_deleted(name, cycle)
    return outcome


def _set_queue(executor: Executor, request: CreateQueue | UpdateQueue, given: Given, cycle: Cycle) -> object:
    """Create or change a queue, unless a script of it can't be used."""
    if isinstance(request, CreateQueue):
        policy = request.policy
    else:
        updated = _updated(executor.ledger, request)
        if isinstance(updated, FairlaneError):
            return updated
        policy, given = updated, replace(given, policy=updated)
    hooks = executor.hook_calls.hooks
    fault = hooks.check(on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    if fault is not None:
        return HookInvalid(f"A script of queue {request.queue!r} can't be used: {fault}")
    outcome = executor.execute(request, cycle, given)
    if not isinstance(outcome, FairlaneError):
        hooks.set(request.queue, on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    return outcome


def _updated(ledger: Ledger, request: UpdateQueue) -> QueuePolicy | FairlaneError:
    """Return the present policy with the fields of a request changed, or why that is not possible."""
    queue = ledger.queues.get(request.queue)
    if queue is None:
        return QueueNotFound(f"There is no queue {request.queue!r:.150}.")
    try:
        return policy_from(dict(request.policy), base=queue.policy)
    except ValueError as error:
        return InvalidArgument(str(error))


def set_hooks(hooks: Hooks, queue: str, policy: QueuePolicy) -> None:
    """Set the scripts of a recovered queue, unless this version of the broker can't use them any more."""
    if hooks.check(on_enqueue=policy.on_enqueue, on_failure=policy.on_failure) is None:
        hooks.set(queue, on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    else:
        _log.warning("The scripts of queue %r can't be used any more; its declared keys apply.", queue)


class HookCalls:
    """Asks hooks and rolls dice for the decisions of a cycle."""

    def __init__(self, hooks: Hooks, entropy: Entropy, bodies: Bodies) -> None:
        self.hooks = hooks
        self._entropy = entropy
        self._bodies = bodies

    def given_for_messages(
        self, ledger: Ledger, name: str, messages: Sequence[NewMessage], now_ms: int, given: Given
    ) -> Given:
        """Ask ``on_enqueue`` about the messages that are valid; the others will be refused anyway."""
        queue = ledger.queues.get(name)
        if queue is None or queue.policy.on_enqueue is None:
            return given
        most = ledger.limits.payload_bytes_max
        faults = [message_fault(message, most) for message in messages]
        valid = [row for row, fault in enumerate(faults) if fault is None]
        questions = [EnqueueQuestion(messages[row].headers, len(messages[row].payload)) for row in valid]
        answers = self.hooks.on_enqueue(queue.name, questions, now_ms)
        if answers is None:
            return replace(given, faults=faults)
        by_row: list[EnqueueAnswer | None] = [None] * len(messages)
        for row, answer in zip(valid, answers, strict=True):
            by_row[row] = answer
        return replace(given, faults=faults, answers=by_row)

    def given_for_failures(self, ledger: Ledger, request: Nack, given: Given, now_ms: int) -> Given:
        """Roll the dice for the jitter of retries, and ask ``on_failure`` about each failed attempt."""
        if request.intent != "failure":
            return given
        dice = [self._entropy.below(_DIE) for _ in request.receipts]
        return replace(given, dice=dice, verdicts=self._verdicts(ledger, request, now_ms))

    def _verdicts(self, ledger: Ledger, request: Nack, now_ms: int) -> list[FailureAnswer | None] | None:
        queue = ledger.queues.get(request.queue)
        if queue is None or queue.policy.on_failure is None:
            return None
        messages = [ledger.find(queue.name, number_of(receipt.id)) for receipt in request.receipts]
        held = [
            message
            for message, receipt in zip(messages, request.receipts, strict=True)
            if message is not None and message.token == receipt.token and message.token
        ]
        try:
            bodies = self._bodies.read(held)
        except FairlaneError:
            return None  # without headers there is nothing to ask, and the queue's policy decides
        heads = {message.number: headers for message, (headers, _, _) in zip(held, bodies, strict=True)}
        verdicts: list[FailureAnswer | None] = []
        for message in messages:
            if message is None or message.number not in heads:
                verdicts.append(None)
                continue
            question = FailureQuestion(
                heads[message.number], id_of(message.number), message.failures + 1, request.error
            )
            verdicts.append(self.hooks.on_failure(queue.name, question, now_ms))
        return verdicts
