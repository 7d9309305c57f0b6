"""How requests without a module of their own are decided: what they need from scripts first, then the decision."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.forwards import inheriting
from fairlane.broker.hook_calls import Enquiry
from fairlane.broker.requests import Call
from fairlane.broker.waiting.script_lines import CHANGES, HookedRequest, ScriptWork, about_queues
from fairlane.core.commands import DeleteEmptyQueue, Given
from fairlane.core.ledger import Ledger
from fairlane.errors import FairlaneError, HookInvalid, InvalidArgument, QueueNotFound
from fairlane.journal.records import ReturnReason
from fairlane.model.ids import MessageIds
from fairlane.model.message import NewMessage
from fairlane.model.names import dlq_of, new_queue_name_fault
from fairlane.model.policy import QueuePolicy, policy_from
from fairlane.model.views import HookTrial
from fairlane.ports.hooks import EnqueueQuestion, FailureQuestion, Hooks
from fairlane.verbs.config import TryHook
from fairlane.verbs.dead_letters import Redrive, StopRedrive
from fairlane.verbs.fan_outs import FanOut
from fairlane.verbs.leases import Forward, Nack
from fairlane.verbs.queues import CreateQueue, DeleteQueue, EnsuredQueue, EnsureQueue, UpdateQueue
from fairlane.verbs.schedules import RunSchedule
from fairlane.verbs.templates import base_fields

_log = logging.getLogger("fairlane.broker")
_SAMPLE_ID = MessageIds().id_of(1)
QueueRequest: TypeAlias = CreateQueue | EnsureQueue | UpdateQueue


def run_call(executor: Executor, call: Call, cycle: Cycle) -> None:
    """Decide a request and answer it, now or when the scripts that it needs have had the time."""
    request = call.request
    if isinstance(request, Nack):
        take_nack(executor, call, request, cycle)
    elif isinstance(request, Forward):
        _take_forward(executor, call, request, cycle)
    elif isinstance(request, FanOut):
        _take_fan_out(executor, call, request, cycle)
    elif isinstance(request, QueueRequest):
        executor.script_lines.take(executor, QueueChange(call), cycle)
    elif isinstance(request, RunSchedule):
        executor.ticks.run(executor, call, cycle)
    elif isinstance(request, TryHook):
        executor.script_lines.take(executor, Trial(call), cycle)
    elif isinstance(request, Redrive):
        cycle.answer(call.reply, executor.redrives.start(executor, request, cycle, call.by))
    elif isinstance(request, StopRedrive):
        cycle.answer(call.reply, executor.redrives.stop(executor, request.id, cycle, call.by))
    else:
        _decide(executor, call, call.given, cycle, cycle.now_ms)


def _decide(executor: Executor, call: Call, given: Given, cycle: Cycle, _came_ms: int) -> None:
    request = call.request
    outcome: object = executor.execute(request, cycle, _signed(call, given))
    if isinstance(request, (DeleteQueue, DeleteEmptyQueue)) and outcome and not isinstance(outcome, FairlaneError):
        for name in (request.queue, dlq_of(request.queue)):
            executor.hook_calls.hooks.remove(name)
            executor.consumers.dismiss_deleted(name, cycle)
            executor.producers.dismiss_deleted(name, cycle)
            executor.sinks.dismiss_deleted(name, cycle)
    cycle.answer(call.reply, outcome)


def _signed(call: Call, given: Given) -> Given:
    return given if call.by is None else replace(given, by=call.by)


# ------------------------------------------------------------------------------------------------ messages and attempts


def take_nack(
    executor: Executor, call: Call, request: Nack, cycle: Cycle, before: Callable[[Executor, Cycle], None] | None = None
) -> None:
    """Roll the dice for the jitter of retries, and ask ``on_failure`` about each attempt that failed or was lost.

    What is to be done ``before`` the decision is done in the same cycle, however long that takes to come.
    """

    def decide(later: Executor, call: Call, given: Given, cycle: Cycle, came_ms: int) -> None:
        if before is not None:
            before(later, cycle)
        _decide(later, call, given, cycle, came_ms)

    given, calls = call.given, executor.hook_calls
    if request.intent == "failure":
        given = replace(given, dice=calls.dice(request))
        queue = executor.ledger.queues.get(request.queue)
        if queue is not None and queue.policy.on_failure is not None:
            work = HookedRequest(
                call,
                lines=(("on_failure", request.queue),),
                enquire=lambda later: _about_failures(later, request, given.reason),
                assemble=lambda found: found[0].given(given) if found else given,
                decide=decide,
                came_ms=cycle.now_ms,
            )
            executor.script_lines.take(executor, work, cycle)
            return
    decide(executor, call, given, cycle, cycle.now_ms)


def _about_failures(executor: Executor, request: Nack, reason: ReturnReason) -> list[Enquiry]:
    queue = executor.ledger.queues.get(request.queue)
    if queue is None:
        return []
    enquiry = executor.hook_calls.about_failures(executor.ledger, queue, request, reason=reason)
    return [] if enquiry is None else [enquiry]


def _take_forward(executor: Executor, call: Call, request: Forward, cycle: Cycle) -> None:
    """Pass on what the messages inherit, and ask ``on_enqueue`` of each queue that they go to."""
    request = inheriting(request, executor.ledger, executor.bodies)
    _take_messages(executor, replace(call, request=request), request.messages, cycle)


def _take_fan_out(executor: Executor, call: Call, request: FanOut, cycle: Cycle) -> None:
    """Ask ``on_enqueue`` about the members, and about the continuation, which comes last in its queue."""
    messages = {**request.messages, request.queue: [*request.messages.get(request.queue, ()), request.then]}
    _take_messages(executor, call, messages, cycle)


def _take_messages(executor: Executor, call: Call, messages: Mapping[str, list[NewMessage]], cycle: Cycle) -> None:
    """Ask ``on_enqueue`` of each queue about the messages that go to it, and decide the request then."""

    def assemble(enquiries: Sequence[Enquiry]) -> Given:
        given = _signed(call, call.given)
        answered = {enquiry.queue: enquiry.given(given) for enquiry in enquiries}
        return replace(given, parts=dict.fromkeys(messages, given) | answered)

    work = HookedRequest(
        call,
        lines=[("on_enqueue", queue) for queue in messages],
        enquire=lambda later: about_queues(later, messages),
        assemble=assemble,
        decide=_decide,
        came_ms=cycle.now_ms,
        creates=list(messages),
    )
    executor.script_lines.take(executor, work, cycle)


# --------------------------------------------------------------------------------------------------------------- queues


class QueueChange(ScriptWork):
    """A queue that is created or changed: its scripts are compiled first, which takes script time too."""

    __slots__ = ("_fault", "_name", "_policy", "call", "lines")

    def __init__(self, call: Call) -> None:
        request = cast("QueueRequest", call.request)
        self.call = call
        # Messages for a queue that is yet to be created wait for it. Those for one that is changed go on, and a change
        # that ends a slow script does not wait for the messages that the script holds up.
        self._name = str(request.queue)  # a program may pass anything; the decision refuses it
        self.lines = (CHANGES,) if isinstance(request, UpdateQueue) else (CHANGES, ("on_enqueue", self._name))
        self._policy: QueuePolicy | None = None
        self._fault: FairlaneError | None = None

    def advance(self, executor: Executor, cycle: Cycle) -> bool:
        """Check the scripts of the new policy."""
        del cycle
        policy = _policy_after(executor.ledger, cast("QueueRequest", self.call.request))
        if isinstance(policy, FairlaneError):
            self._fault = policy
            return True
        self._policy = policy
        if policy.on_enqueue is None and policy.on_failure is None:
            return True
        calls = executor.hook_calls
        if calls.left_ns(self._name) <= 0:
            return False
        before_ns = calls.hooks.spent_ns
        fault = _check_hooks(calls.hooks, policy)
        calls.charge(self._name, calls.hooks.spent_ns - before_ns)
        if fault is not None:
            self._fault = HookInvalid(f"A script of queue {self._name!r} can't be used: {fault}")
        return True

    def decide(self, executor: Executor, cycle: Cycle) -> None:
        """Create or change the queue, unless a script of it can't be used."""
        call, policy = self.call, self._policy
        if self._fault is not None or policy is None:
            cycle.answer(call.reply, self._fault)
            return
        outcome: object = executor.execute(call.request, cycle, _signed(call, replace(call.given, policy=policy)))
        if not isinstance(outcome, FairlaneError) and not _was_there(outcome):
            _set_hooks(executor.hook_calls.hooks, self._name, policy)
        cycle.answer(call.reply, outcome)


def _policy_after(ledger: Ledger, request: QueueRequest) -> QueuePolicy | FairlaneError:
    """Return the policy that a queue would have with the fields of a request, or why that is not possible.

    A new queue begins with the fields of its template.
    For a queue that exists, ``ensure_queue`` compares this with the policy that the queue keeps.
    """
    if not isinstance(request, UpdateQueue) and (fault := new_queue_name_fault(request.queue)) is not None:
        return InvalidArgument(fault)
    queue = None if isinstance(request, CreateQueue) else ledger.queues.get(request.queue)
    if queue is None and isinstance(request, UpdateQueue):
        return QueueNotFound(f"Queue {request.queue!r:.150} does not exist.")
    try:
        if queue is None:
            return policy_from(base_fields(ledger.templates, request.queue) | dict(request.policy))
        return policy_from(dict(request.policy), base=queue.policy)
    except ValueError as error:
        return InvalidArgument(str(error))


def _was_there(outcome: object) -> bool:
    return isinstance(outcome, EnsuredQueue) and not outcome.is_created


def set_hooks(hooks: Hooks, queue: str, policy: QueuePolicy) -> None:
    """Set the scripts of a recovered queue, unless this version of the broker can't use them any more."""
    if _check_hooks(hooks, policy) is None:
        _set_hooks(hooks, queue, policy)
    else:
        _log.warning("The scripts of queue %r can no longer be used; its declared keys apply.", queue)


def _check_hooks(hooks: Hooks, policy: QueuePolicy) -> str | None:
    return hooks.check(on_enqueue=policy.on_enqueue, on_failure=policy.on_failure, limits=policy.hook_limits)


def _set_hooks(hooks: Hooks, queue: str, policy: QueuePolicy) -> None:
    hooks.set(queue, on_enqueue=policy.on_enqueue, on_failure=policy.on_failure, limits=policy.hook_limits)


# --------------------------------------------------------------------------------------------------------------- trials


class Trial(ScriptWork):
    """A script that is tried on a sample: it takes script time, and changes nothing."""

    __slots__ = ("_trial", "call", "lines")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.lines = (("trials", cast("TryHook", call.request).queue),)
        self._trial: HookTrial | None = None

    def advance(self, executor: Executor, cycle: Cycle) -> bool:
        """Run the script."""
        del cycle
        request, calls = cast("TryHook", self.call.request), executor.hook_calls
        if calls.left_ns(request.queue) <= 0:
            return False
        before_ns, headers = calls.hooks.spent_ns, dict(request.headers)
        if request.hook == "on_enqueue":
            asked = EnqueueQuestion(headers, request.payload_size)
            self._trial = calls.hooks.try_on_enqueue(request.queue, request.script, asked)
        else:
            failed = FailureQuestion(headers, _SAMPLE_ID, request.attempts, request.error)
            self._trial = calls.hooks.try_on_failure(request.queue, request.script, failed)
        calls.charge(request.queue, calls.hooks.spent_ns - before_ns)
        return True

    def decide(self, executor: Executor, cycle: Cycle) -> None:
        """Answer with what came of it."""
        del executor
        cycle.answer(self.call.reply, self._trial)
