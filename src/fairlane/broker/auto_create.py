"""Queues that are created by the first request that needs them, where a template of the operator says so."""

from __future__ import annotations

from fairlane.broker.cycle import Cycle, Executor
from fairlane.core.commands import Given
from fairlane.core.decision import no_queue
from fairlane.errors import FairlaneError, HookInvalid, InvalidArgument, QueueNotFound
from fairlane.model.names import new_queue_name_fault
from fairlane.verbs.queues import CreateQueue
from fairlane.verbs.templates import full_text, template_for


def still_missing(executor: Executor, queue: str, cycle: Cycle, by: str | None = None) -> FairlaneError | None:
    """Create a queue that does not exist if its template says so. Return why it still does not exist, or None."""
    ledger = executor.ledger
    if queue in ledger.queues:
        return None
    return _create(executor, queue, cycle, by) if ledger.templates else no_queue(queue)


def _create(executor: Executor, queue: str, cycle: Cycle, by: str | None) -> FairlaneError | None:
    ledger, calls = executor.ledger, executor.hook_calls
    template = None if new_queue_name_fault(queue) is not None else template_for(ledger.templates, queue)
    if template is None or not template.auto_create:
        return no_queue(queue)
    if (full := full_text(queue, template, len(ledger.queues) // 2)) is not None:
        return QueueNotFound(full)
    try:
        policy = template.base()
    except ValueError as error:  # another version has set it
        return InvalidArgument(f"The template of queue {queue!r} can't be used: {error}")
    # The scripts of a template are compiled for each of its queues: a new queue has all of its script time left.
    before_ns = calls.hooks.spent_ns
    fault = calls.hooks.check(on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    calls.charge(queue, calls.hooks.spent_ns - before_ns)
    if fault is not None:
        return HookInvalid(f"A script of the template of queue {queue!r} can't be used: {fault}")
    outcome = executor.execute(CreateQueue(queue=queue), cycle, Given(by=by, policy=policy))
    if isinstance(outcome, FairlaneError):
        return no_queue(queue)  # it is the name of a partition
    calls.hooks.set(queue, on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    return None
