"""What user scripts are asked, and what they may answer.

A hook answers before the core decides: its answer travels inside the command and into the record, so neither recovery
nor simulation ever runs a script. A hook that fails answers nothing, and the queue's declared keys apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.histogram import Histogram
from fairlane.model.views import HookStatistics, HookTrial


class EnqueueQuestion(msgspec.Struct, frozen=True):
    """What ``on_enqueue`` is told of one message."""

    headers: Mapping[str, str]
    payload_size: int


class FailureQuestion(msgspec.Struct, frozen=True):
    """What ``on_failure`` is told of one failed attempt. ``attempts`` counts the failures, this one included."""

    headers: Mapping[str, str]
    id: str
    attempts: int
    error: str


class Hooks(Protocol):
    """Runs the scripts of queues, each in a sandbox of its own. Never raises for what a script does."""

    def check(self, *, on_enqueue: str | None, on_failure: str | None) -> str | None:
        """Return why these scripts can't be set, or None if they can. Changes nothing."""

    def set(self, queue: str, *, on_enqueue: str | None, on_failure: str | None) -> None:
        """Set the scripts of a queue, which ``check`` has found good. Its breaker closes and its counts go on."""

    def remove(self, queue: str) -> None:
        """Forget a queue and its scripts."""

    def on_enqueue(
        self, queue: str, questions: Sequence[EnqueueQuestion], now_ms: int
    ) -> list[EnqueueAnswer | None] | None:
        """Ask about messages; None for each without an answer, or at once if the queue has no such script."""

    def on_failure(self, queue: str, question: FailureQuestion, now_ms: int) -> FailureAnswer | None:
        """Ask about a failed attempt; None if there is no script or no answer."""

    def try_on_enqueue(self, queue: str, script: str, question: EnqueueQuestion) -> HookTrial:
        """Run a script on a sample, in a sandbox that is thrown away."""

    def try_on_failure(self, queue: str, script: str, question: FailureQuestion) -> HookTrial:
        """Run a script on a sample, in a sandbox that is thrown away."""

    def statistics(self, queue: str) -> HookStatistics:
        """Return the counts of a queue."""

    def timings(self, queue: str) -> Histogram:
        """Return how many seconds scripts took for a message; of messages that were asked about together the mean."""
