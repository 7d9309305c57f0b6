"""What scripts are asked for a request, within the script time of a cycle.

What a hook answers, and what the dice say, is given to the decision. So it depends on nothing but the ledger, the
request, what is given and the instant, and neither recovery nor a simulation ever runs a script.

Scripts run on the writer, so everyone waits while one runs. A cycle has a budget of script time, and each queue a part
of it. A script that takes longer is asked about the remaining messages in later cycles; see ``waiting.script_lines``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from fairlane.broker.bodies import Bodies
from fairlane.broker.settings import Settings
from fairlane.core.checks import message_fault
from fairlane.core.commands import Given
from fairlane.core.decide.enqueue import size_of
from fairlane.core.ledger import Ledger, Queue
from fairlane.errors import FairlaneError
from fairlane.journal.records import ReturnReason
from fairlane.model.answers import EnqueueAnswer
from fairlane.model.message import NewMessage
from fairlane.ports.entropy import Entropy
from fairlane.ports.hooks import EnqueueQuestion, FailureQuestion, Hooks
from fairlane.verbs.leases import Nack

_DIE = 1000
_NS_PER_MS = 1_000_000
HookName: TypeAlias = Literal["on_enqueue", "on_failure"]


@dataclass(slots=True, eq=False, kw_only=True)
class Enquiry:
    """What one script is asked about the messages of a request, and what it has answered so far.

    All answers come from one script: if the queue's script changes meanwhile, the new one is asked from the start.

    Attributes:
        script: the text of the script that has answered so far; None before it was asked, or if there is none.
        count: how many messages the request has.
        rows: the messages that are asked about, by their place in the request; the others are refused anyway.
        questions: for each of these rows the question, of the kind that the hook answers.
        faults: what is wrong with each new message, if that was checked.
    """

    queue: str
    hook: HookName
    count: int
    rows: Sequence[int]
    questions: Sequence[Any]
    faults: Sequence[FairlaneError | None] | None = None
    script: str | None = None
    answers: list[Any] = field(default_factory=list)

    def given(self, given: Given) -> Given:
        """Return what the decision is given, with what the script has answered."""
        if self.script is None:
            return replace(given, faults=self.faults)
        by_row: list[Any] = [None] * self.count
        for row, answer in zip(self.rows, self.answers, strict=True):
            by_row[row] = answer
        if self.hook == "on_failure":
            return replace(given, verdicts=by_row)
        return replace(given, faults=self.faults, answers=by_row)


class HookCalls:
    """Asks scripts within the time of a cycle, and rolls dice."""

    def __init__(self, hooks: Hooks, entropy: Entropy, bodies: Bodies, settings: Settings) -> None:
        self.hooks = hooks
        self._entropy = entropy
        self._bodies = bodies
        self._cycle_ns_max = settings.hook_cycle_ms_max * _NS_PER_MS
        self._queue_ns_max = settings.hook_queue_ms_max * _NS_PER_MS
        self._spent_ns: dict[str, int] = {}
        self.cycle_ns = 0

    # ------------------------------------------------------------------------------------------------------------ time

    def begin_cycle(self) -> None:
        """Start a cycle, with all of its script time."""
        self._spent_ns.clear()
        self.cycle_ns = 0

    def left_ns(self, queue: str) -> int:
        """Return how much script time a queue has left in this cycle; 0 or less for none."""
        return min(self._queue_ns_max - self._spent_ns.get(queue, 0), self._cycle_ns_max - self.cycle_ns)

    def charge(self, queue: str, spent_ns: int) -> None:
        """Count script time of a queue in this cycle."""
        self._spent_ns[queue] = self._spent_ns.get(queue, 0) + spent_ns
        self.cycle_ns += spent_ns

    # ------------------------------------------------------------------------------------------------------- enquiries

    def about_messages(self, ledger: Ledger, queue: Queue, messages: Sequence[NewMessage]) -> Enquiry:
        """Return what ``on_enqueue`` is asked: about the messages that are valid; the others will be refused anyway."""
        most = ledger.limits.payload_bytes_max
        faults = [message_fault(message, most) for message in messages]
        rows = [row for row, fault in enumerate(faults) if fault is None]
        questions = [EnqueueQuestion(messages[row].headers, size_of(queue, messages[row])) for row in rows]
        return Enquiry(
            queue=queue.name, hook="on_enqueue", count=len(messages), rows=rows, questions=questions, faults=faults
        )

    def about_failures(self, ledger: Ledger, queue: Queue, request: Nack, *, reason: ReturnReason) -> Enquiry | None:
        """Return what ``on_failure`` is asked: about each attempt that is the caller's to fail. None for nothing."""
        found = [ledger.find(queue.name, ledger.ids.number_of(receipt.id)) for receipt in request.receipts]
        held = [
            (row, message)
            for row, (message, receipt) in enumerate(zip(found, request.receipts, strict=True))
            if message is not None and message.token == receipt.token and message.token
        ]
        try:
            bodies = self._bodies.read([message for _, message in held])
        except FairlaneError:
            return None  # without headers there is nothing to ask, and the queue's policy decides
        questions = [
            FailureQuestion(headers, message.id, message.failures + message.expiries + 1, request.error, reason)
            for (_, message), (headers, _, _) in zip(held, bodies, strict=True)
        ]
        rows = [row for row, _ in held]
        return Enquiry(queue=queue.name, hook="on_failure", count=len(found), rows=rows, questions=questions)

    def dice(self, request: Nack) -> list[int]:
        """Roll the dice for the jitter of retries."""
        return [self._entropy.below(_DIE) for _ in request.receipts]

    # ---------------------------------------------------------------------------------------------------------- asking

    def advance(self, enquiry: Enquiry, ledger: Ledger, now_ms: int) -> bool:
        """Ask a script while there is time, and return whether all is answered."""
        queue = ledger.queues.get(enquiry.queue)
        script = None if queue is None else getattr(queue.policy, enquiry.hook)
        if script != enquiry.script:
            enquiry.script, enquiry.answers = script, []
        if script is None:
            return True
        while len(enquiry.answers) < len(enquiry.questions):
            if self.left_ns(enquiry.queue) <= 0:
                return False
            if not self._ask(enquiry, now_ms):
                enquiry.script = None  # this version of the broker can't use the script
                return True
        return True

    def _ask(self, enquiry: Enquiry, now_ms: int) -> bool:
        """Ask a script about one message or more; return whether there is such a script."""
        rest = enquiry.questions[len(enquiry.answers) :]
        if enquiry.hook == "on_enqueue":
            answers = self.ask_on_enqueue(enquiry.queue, rest, now_ms)
            enquiry.answers += answers or ()
            return answers is not None
        before_ns = self.hooks.spent_ns
        enquiry.answers.append(self.hooks.on_failure(enquiry.queue, rest[0], now_ms))
        self.charge(enquiry.queue, self.hooks.spent_ns - before_ns)
        return True

    def ask_on_enqueue(
        self, queue: str, questions: Sequence[EnqueueQuestion], now_ms: int
    ) -> list[EnqueueAnswer | None] | None:
        """Ask ``on_enqueue`` about messages while there is time; see ``Hooks.on_enqueue``."""
        left_ns = self.left_ns(queue)
        if left_ns <= 0:
            return []
        before_ns = self.hooks.spent_ns
        answers = self.hooks.on_enqueue(queue, questions, now_ms, most_ns=left_ns)
        self.charge(queue, self.hooks.spent_ns - before_ns)
        return answers
