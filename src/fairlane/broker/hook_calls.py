"""Commands and hooks: hooks answer before a command is decided, and learn when a queue's scripts change.

What a hook answers, and what the dice say, goes into the command. So a decision depends on nothing but the ledger, the
command and the instant, and neither recovery nor a simulation ever runs a script.
"""

from __future__ import annotations

import logging

from fairlane.broker.bodies import Bodies
from fairlane.broker.cycle import Cycle, Executor
from fairlane.core.checks import message_fault
from fairlane.core.commands import Ack, Command, CreateQueue, DeleteQueue, Enqueue, Nack, UpdateQueue
from fairlane.core.ledger import Ledger
from fairlane.errors import FairlaneError, HookInvalid, InvalidArgument, QueueNotFound
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.names import dlq_of, id_of, number_of
from fairlane.model.policy import QueuePolicy, policy_from
from fairlane.ports.entropy import Entropy
from fairlane.ports.hooks import EnqueueQuestion, FailureQuestion, Hooks

_DIE = 1000
_log = logging.getLogger("fairlane.broker")


def run_command(executor: Executor, command: Command, cycle: Cycle) -> object:
    """Complete a command with what hooks answer, execute it, and return its outcome."""
    calls = executor.hook_calls
    if isinstance(command, Ack):
        for part in command.forward:
            calls.complete_enqueue(executor.ledger, part, cycle.now_ms)
    elif isinstance(command, Nack):
        calls.complete_nack(executor.ledger, command, cycle.now_ms)
    elif isinstance(command, (CreateQueue, UpdateQueue)):
        return _set_queue(executor, command, cycle)
    outcome = executor.execute(command, cycle)
    if isinstance(command, DeleteQueue) and outcome is True:
        for name in (command.queue, dlq_of(command.queue)):
            calls.hooks.remove(name)
            executor.consumers.dismiss_deleted(name, cycle)
    return outcome


def _set_queue(executor: Executor, command: CreateQueue | UpdateQueue, cycle: Cycle) -> object:
    """Create or change a queue, unless a script of it can't be used."""
    if isinstance(command, UpdateQueue):
        refusal = _complete_update(executor.ledger, command)
        if refusal is not None:
            return refusal
    hooks, policy = executor.hook_calls.hooks, command.policy
    fault = hooks.check(on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    if fault is not None:
        return HookInvalid(f"A script of queue {command.queue!r} can't be used: {fault}")
    outcome = executor.execute(command, cycle)
    if not isinstance(outcome, FairlaneError):
        hooks.set(command.queue, on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    return outcome


def _complete_update(ledger: Ledger, command: UpdateQueue) -> FairlaneError | None:
    """Merge the fields that change into the queue's present policy, or return why that is not possible."""
    queue = ledger.queues.get(command.queue)
    if queue is None:
        return QueueNotFound(f"There is no queue {command.queue!r:.150}.")
    if command.fields is not None:
        try:
            command.policy = policy_from(dict(command.fields), base=queue.policy)
        except ValueError as error:
            return InvalidArgument(str(error))
    return None


def set_hooks(hooks: Hooks, queue: str, policy: QueuePolicy) -> None:
    """Set the scripts of a recovered queue, unless this version of the broker can't use them any more."""
    if hooks.check(on_enqueue=policy.on_enqueue, on_failure=policy.on_failure) is None:
        hooks.set(queue, on_enqueue=policy.on_enqueue, on_failure=policy.on_failure)
    else:
        _log.warning("The scripts of queue %r can't be used any more; its declared keys apply.", queue)


class HookCalls:
    """Completes commands with what hooks answer and what the dice say."""

    def __init__(self, hooks: Hooks, entropy: Entropy, bodies: Bodies) -> None:
        self.hooks = hooks
        self._entropy = entropy
        self._bodies = bodies

    def complete_enqueue(self, ledger: Ledger, command: Enqueue, now_ms: int) -> None:
        """Ask ``on_enqueue`` about the messages that are valid; the others will be refused anyway."""
        queue = ledger.queues.get(command.queue)
        if queue is None or queue.policy.on_enqueue is None:
            return
        most = ledger.limits.payload_bytes_max
        command.faults = [message_fault(message, most) for message in command.messages]
        valid = [row for row, fault in enumerate(command.faults) if fault is None]
        questions = [
            EnqueueQuestion(command.messages[row].headers, len(command.messages[row].payload)) for row in valid
        ]
        answers = self.hooks.on_enqueue(queue.name, questions, now_ms)
        if answers is not None:
            by_row: list[EnqueueAnswer | None] = [None] * len(command.messages)
            for row, answer in zip(valid, answers, strict=True):
                by_row[row] = answer
            command.answers = by_row

    def complete_nack(self, ledger: Ledger, command: Nack, now_ms: int) -> None:
        """Roll the dice for the jitter of retries, and ask ``on_failure`` about each failed attempt."""
        if command.intent != "failure":
            return
        command.dice = [self._entropy.below(_DIE) for _ in command.receipts]
        queue = ledger.queues.get(command.queue)
        if queue is None or queue.policy.on_failure is None:
            return
        messages = [ledger.find(queue.name, number_of(receipt.id)) for receipt in command.receipts]
        held = [
            message
            for message, receipt in zip(messages, command.receipts, strict=True)
            if message is not None and message.token == receipt.token and message.token
        ]
        try:
            bodies = self._bodies.read(held)
        except FairlaneError:
            return  # without headers there is nothing to ask, and the queue's policy decides
        heads = {message.number: headers for message, (headers, _, _) in zip(held, bodies, strict=True)}
        answers: list[FailureAnswer | None] = []
        for message in messages:
            if message is None or message.number not in heads:
                answers.append(None)
                continue
            question = FailureQuestion(
                heads[message.number], id_of(message.number), message.failures + 1, command.error
            )
            answers.append(self.hooks.on_failure(queue.name, question, now_ms))
        command.answers = answers
