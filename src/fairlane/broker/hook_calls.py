"""Asking hooks and dice, so that a command carries all that its decision needs."""

from __future__ import annotations

from fairlane.broker.bodies import Bodies
from fairlane.core.checks import message_fault
from fairlane.core.commands import Enqueue, Nack
from fairlane.core.ledger import Ledger
from fairlane.errors import FairlaneError
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.names import id_of, number_of
from fairlane.ports.entropy import Entropy
from fairlane.ports.hooks import EnqueueQuestion, FailureQuestion, Hooks

_DIE = 1000


class HookCalls:
    """Completes commands with what hooks answer and dice say."""

    def __init__(self, hooks: Hooks, entropy: Entropy, bodies: Bodies) -> None:
        self._hooks = hooks
        self._entropy = entropy
        self._bodies = bodies

    def complete_enqueue(self, ledger: Ledger, command: Enqueue, now_ms: int) -> None:
        """Ask ``on_enqueue`` about the messages that are sound; the others will be refused anyway."""
        queue = ledger.queues.get(command.queue)
        if queue is None or queue.policy.on_enqueue is None:
            return
        most = ledger.limits.payload_bytes_max
        command.faults = [message_fault(message, most) for message in command.messages]
        sound = [row for row, fault in enumerate(command.faults) if fault is None]
        questions = [
            EnqueueQuestion(command.messages[row].headers, len(command.messages[row].payload)) for row in sound
        ]
        answers = self._hooks.on_enqueue(queue.name, questions, now_ms)
        if answers is not None:
            by_row: list[EnqueueAnswer | None] = [None] * len(command.messages)
            for row, answer in zip(sound, answers, strict=True):
                by_row[row] = answer
            command.answers = by_row

    def ask(self, queue: str, questions: list[EnqueueQuestion], now_ms: int) -> list[EnqueueAnswer | None] | None:
        """Ask ``on_enqueue`` about messages that are not new."""
        return self._hooks.on_enqueue(queue, questions, now_ms)

    def complete_nack(self, ledger: Ledger, command: Nack, now_ms: int) -> None:
        """Throw the dice for retries, and ask ``on_failure`` about each failed attempt."""
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
            answers.append(self._hooks.on_failure(queue.name, question, now_ms))
        command.answers = answers
