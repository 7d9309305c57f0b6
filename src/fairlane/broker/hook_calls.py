"""Ask hooks and dice, so that a decision is given everything it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairlane.broker.bodies import Bodies
from fairlane.core.checks import message_fault
from fairlane.core.commands import NOTHING_GIVEN, Given
from fairlane.core.ledger import Ledger
from fairlane.errors import FairlaneError
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.message import NewMessage
from fairlane.model.names import id_of, number_of
from fairlane.ports.entropy import Entropy
from fairlane.ports.hooks import EnqueueQuestion, FailureQuestion, Hooks
from fairlane.verbs.leases import Nack

_DIE = 1000


class HookCalls:
    """Asks hooks and throws dice for the decisions of a cycle."""

    def __init__(self, hooks: Hooks, entropy: Entropy, bodies: Bodies) -> None:
        self._hooks = hooks
        self._entropy = entropy
        self._bodies = bodies

    def given_for_messages(
        self, ledger: Ledger, name: str, messages: Sequence[NewMessage], now_ms: int, by: str | None = None
    ) -> Given:
        """Ask ``on_enqueue`` about the messages that are valid; the others will be refused anyway."""
        queue = ledger.queues.get(name)
        if queue is None or queue.policy.on_enqueue is None:
            return NOTHING_GIVEN if by is None else Given(by=by)
        most = ledger.limits.payload_bytes_max
        faults = [message_fault(message, most) for message in messages]
        sound = [row for row, fault in enumerate(faults) if fault is None]
        questions = [EnqueueQuestion(messages[row].headers, len(messages[row].payload)) for row in sound]
        answers = self._hooks.on_enqueue(queue.name, questions, now_ms)
        if answers is None:
            return Given(by=by, faults=faults)
        by_row: list[EnqueueAnswer | None] = [None] * len(messages)
        for row, answer in zip(sound, answers, strict=True):
            by_row[row] = answer
        return Given(by=by, faults=faults, answers=by_row)

    def ask(self, queue: str, questions: list[EnqueueQuestion], now_ms: int) -> list[EnqueueAnswer | None] | None:
        """Ask ``on_enqueue`` about messages that exist already."""
        return self._hooks.on_enqueue(queue, questions, now_ms)

    def given_for_failures(self, ledger: Ledger, request: Nack, given: Given, now_ms: int) -> Given:
        """Throw the dice for retries, and ask ``on_failure`` about each failed attempt."""
        if request.intent != "failure":
            return given
        dice = [self._entropy.below(_DIE) for _ in request.receipts]
        verdicts = self._verdicts(ledger, request, now_ms)
        return replace(given, dice=dice, verdicts=verdicts)

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
            verdicts.append(self._hooks.on_failure(queue.name, question, now_ms))
        return verdicts
