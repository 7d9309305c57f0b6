"""Running a command: hooks are asked before it is decided, and told when it has changed their scripts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Call
from fairlane.core.commands import DeleteEmptyQueue, Given
from fairlane.core.ledger import Ledger
from fairlane.errors import FairlaneError, HookInvalid, InvalidArgument, QueueNotFound
from fairlane.model.names import dlq_of
from fairlane.model.policy import QueuePolicy, policy_from
from fairlane.ports.hooks import Hooks
from fairlane.verbs.leases import Forward, Nack
from fairlane.verbs.queues import CreateQueue, DeleteQueue, UpdateQueue

_log = logging.getLogger("fairlane.broker")


def set_hooks(hooks: Hooks, queue: str, policy: QueuePolicy) -> None:
    """Let a queue that was recovered have its scripts, as far as they can be used."""
    if hooks.check(on_enqueue=policy.on_enqueue, on_failure=policy.on_failure) is None:
        hooks.set(queue, on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    else:
        _log.warning("The scripts of queue %r can't be used any more; its declared keys apply.", queue)


def run_command(
    executor: Executor, hooks: Hooks, call: Call, cycle: Cycle, *, dismiss: Callable[[str, Cycle], None]
) -> object:
    """Ask the hooks about a request, decide it, and apply its records. Returns its outcome.

    ``dismiss`` is called for each queue that was deleted.
    """
    request, given = call.request, call.given if call.by is None else replace(call.given, by=call.by)
    ledger, now_ms = executor.ledger, cycle.now_ms
    if isinstance(request, Nack):
        given = executor.hook_calls.given_for_failures(ledger, request, given, now_ms)
    elif isinstance(request, Forward):
        about = executor.hook_calls.given_for_messages
        parts = {queue: about(ledger, queue, news, now_ms) for queue, news in request.messages.items()}
        given = replace(given, parts=parts)
    elif isinstance(request, (CreateQueue, UpdateQueue)):
        return _set_queue(executor, hooks, request, given, cycle)
    outcome: object = executor.execute(request, cycle, given)
    if isinstance(request, (DeleteQueue, DeleteEmptyQueue)) and not isinstance(outcome, FairlaneError) and outcome:
        for name in (request.queue, dlq_of(request.queue)):
            hooks.remove(name)
            dismiss(name, cycle)
    return outcome


def _set_queue(
    executor: Executor, hooks: Hooks, request: CreateQueue | UpdateQueue, given: Given, cycle: Cycle
) -> object:
    """Create or change a queue if its scripts are valid."""
    if isinstance(request, CreateQueue):
        policy = request.policy
    else:
        updated = _updated(executor.ledger, request)
        if isinstance(updated, FairlaneError):
            return updated
        policy, given = updated, replace(given, policy=updated)
    fault = hooks.check(on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    if fault is not None:
        return HookInvalid(f"A script of queue {request.queue!r} can't be used: {fault}")
    outcome = executor.execute(request, cycle, given)
    if not isinstance(outcome, FairlaneError):
        hooks.set(request.queue, on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    return outcome


def _updated(ledger: Ledger, request: UpdateQueue) -> QueuePolicy | FairlaneError:
    """Return the current policy with the fields of a request changed, or why that is not possible."""
    queue = ledger.queues.get(request.queue)
    if queue is None:
        return QueueNotFound(f"There is no queue {request.queue!r:.150}.")
    try:
        return policy_from(dict(request.policy), base=queue.policy)
    except ValueError as error:
        return InvalidArgument(str(error))
