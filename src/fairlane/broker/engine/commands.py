"""Running a command: hooks are asked before it is decided, and told when it has changed their scripts."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fairlane.broker.cycle import Cycle, Executor
from fairlane.core.commands import Ack, Command, CreateQueue, DeleteQueue, Nack, UpdateQueue
from fairlane.core.ledger import Ledger
from fairlane.errors import FairlaneError, HookInvalid, InvalidArgument, QueueNotFound
from fairlane.model.names import dlq_of
from fairlane.model.policy import QueuePolicy, policy_from
from fairlane.ports.hooks import Hooks

_log = logging.getLogger("fairlane.broker")


def set_hooks(hooks: Hooks, queue: str, policy: QueuePolicy) -> None:
    """Let a queue that was recovered have its scripts, as far as they can be used."""
    if hooks.check(on_enqueue=policy.on_enqueue, on_failure=policy.on_failure) is None:
        hooks.set(queue, on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    else:
        _log.warning("The scripts of queue %r can't be used any more; its declared keys apply.", queue)


def run_command(
    executor: Executor, hooks: Hooks, command: Command, cycle: Cycle, *, dismiss: Callable[[str, Cycle], None]
) -> object:
    """Ask the hooks what they have to say about a command, decide it, and make it so. Returns its outcome.

    ``dismiss`` is called for each queue that is gone.
    """
    if type(command) is Nack:
        executor.hook_calls.complete_nack(executor.ledger, command, cycle.now_ms)
    elif type(command) is Ack:
        for part in command.forward:
            executor.hook_calls.complete_enqueue(executor.ledger, part, cycle.now_ms)
    elif isinstance(command, (CreateQueue, UpdateQueue)):
        return _set_queue(executor, hooks, command, cycle)
    outcome = executor.execute(command, cycle)
    if isinstance(command, DeleteQueue) and outcome is True:
        for name in (command.queue, dlq_of(command.queue)):
            hooks.remove(name)
            dismiss(name, cycle)
    return outcome


def _set_queue(executor: Executor, hooks: Hooks, command: CreateQueue | UpdateQueue, cycle: Cycle) -> object:
    """Make or change a queue if its scripts can be used."""
    if isinstance(command, UpdateQueue):
        refusal = _complete_update(executor.ledger, command)
        if refusal is not None:
            return refusal
    policy = command.policy
    fault = hooks.check(on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    if fault is not None:
        return HookInvalid(f"A script of queue {command.queue!r} can't be used: {fault}")
    outcome = executor.execute(command, cycle)
    if not isinstance(outcome, FairlaneError):
        hooks.set(command.queue, on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    return outcome


def _complete_update(ledger: Ledger, command: UpdateQueue) -> FairlaneError | None:
    """Put the fields that change into the policy as it is now, or return why that can't be."""
    queue = ledger.queues.get(command.queue)
    if queue is None:
        return QueueNotFound(f"There is no queue {command.queue!r:.150}.")
    if command.fields is not None:
        try:
            command.policy = policy_from(dict(command.fields), base=queue.policy)
        except ValueError as error:
            return InvalidArgument(str(error))
    return None
