"""Hooks without Lua: scripts are names and answers follow from headers, so that the auditor can predict them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.histogram import Histogram
from fairlane.model.hook_limits import NO_HOOK_LIMITS, HookLimits
from fairlane.model.views import HookStatistics, HookTrial
from fairlane.ports.hooks import UNLIMITED_NS, EnqueueQuestion, FailureQuestion

ON_ENQUEUE = "answer by device"
ON_FAILURE = "answer by cost"
MESSAGE_NS = 2_000_000
"""The time that a script takes for a message. A cycle has time for a few of them, so requests wait for more."""
_PATIENCE = 2


def enqueue_answer(headers: Mapping[str, str]) -> EnqueueAnswer | None:
    """Return the script's answer for a new message: nothing unless it comes from an app."""
    if headers.get("device") != "app":
        return None
    return EnqueueAnswer(fairness_key=("apps", headers.get("tenant", "none")), cost=2, throttles=("api",))


def failure_answer(headers: Mapping[str, str], attempts: int) -> FailureAnswer | None:
    """Return the script's answer for a failed attempt: nothing, an early retry, or a dead letter."""
    cost = headers.get("cost")
    if cost is None:
        return None
    return FailureAnswer(is_dead=attempts >= _PATIENCE, delay_ms=None if cost == "7" else 300)


class SimulatedHooks:
    """The ``Hooks`` port, for scripts of these two names.

    Attributes:
        spent_ns: the time that the scripts have used.
    """

    def __init__(self) -> None:
        self._set: dict[str, tuple[str | None, str | None]] = {}
        self.spent_ns = 0

    def check(
        self, *, on_enqueue: str | None, on_failure: str | None, limits: HookLimits = NO_HOOK_LIMITS
    ) -> str | None:
        """Return why these scripts can't be set, or None if they can."""
        del limits
        is_known = on_enqueue in (None, ON_ENQUEUE) and on_failure in (None, ON_FAILURE)
        return None if is_known else "there is no such script"

    def set(
        self, queue: str, *, on_enqueue: str | None, on_failure: str | None, limits: HookLimits = NO_HOOK_LIMITS
    ) -> None:
        """Set the scripts of a queue."""
        del limits
        self._set[queue] = (on_enqueue, on_failure)

    def remove(self, queue: str) -> None:
        """Forget a queue and its scripts."""
        self._set.pop(queue, None)

    def on_enqueue(
        self, queue: str, questions: Sequence[EnqueueQuestion], now_ms: int, *, most_ns: int = UNLIMITED_NS
    ) -> list[EnqueueAnswer | None] | None:
        """Answer about messages, as many as there is time for."""
        del now_ms
        script, _ = self._set.get(queue, (None, None))
        if script is None:
            return None
        count = min(len(questions), max(1, -(-most_ns // MESSAGE_NS)))
        self.spent_ns += count * MESSAGE_NS
        return [enqueue_answer(question.headers) for question in questions[:count]]

    def on_failure(self, queue: str, question: FailureQuestion, now_ms: int) -> FailureAnswer | None:
        """Answer about a failed attempt."""
        del now_ms
        _, script = self._set.get(queue, (None, None))
        self.spent_ns += MESSAGE_NS
        return None if script is None else failure_answer(question.headers, question.attempts)

    def try_on_enqueue(self, queue: str, script: str, question: EnqueueQuestion) -> HookTrial:
        """Answer about a sample."""
        del queue, script
        return HookTrial(answer=enqueue_answer(question.headers), fault=None, elapsed_us=0)

    def try_on_failure(self, queue: str, script: str, question: FailureQuestion) -> HookTrial:
        """Answer about a sample."""
        del queue, script
        return HookTrial(answer=failure_answer(question.headers, question.attempts), fault=None, elapsed_us=0)

    def statistics(self, queue: str, now_ms: int) -> HookStatistics:
        """Return zeros."""
        del queue, now_ms
        return HookStatistics(calls=0, faults=0, bypassed=0, elapsed_us=0, is_open=False, last_fault=None)

    def timings(self, queue: str) -> Histogram:
        """Return zero durations."""
        del queue
        return Histogram()
