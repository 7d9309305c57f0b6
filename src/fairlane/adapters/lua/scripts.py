"""The scripts of one queue: their sandboxes, created when needed, their circuit breaker and their counts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from fairlane.adapters.lua.breaker import Breaker
from fairlane.adapters.lua.sandbox import Config, HookName, Sandbox, ScriptFault, Value
from fairlane.model.histogram import Histogram
from fairlane.model.views import HookStatistics

_MESSAGES_MAX: Final = 64
"""Messages passed to Lua at once. Each crossing releases the GIL, so one crossing per message would be expensive."""
_TEXTS_MAX: Final = 2_048
"""The number of texts after which a batch is full: messages with many headers are passed in smaller batches."""
NOT_TEXT: Final = "returned a string that is not UTF-8"
TIMES_S: Final = (1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025)

_log = logging.getLogger("fairlane.hooks")

Question = TypeVar("Question")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Dialogue(Generic[Question, Answer]):
    """The conversion of one kind of question to flat values, and of flat values to answers."""

    hook: HookName
    flatten: Callable[[Question, list[int], list[bytes]], None]
    read: Callable[[tuple[Value, ...]], tuple[list[Answer | None], int]]


Loader: TypeAlias = Callable[[str, HookName], Sandbox]
"""Loads the text of a script into a new sandbox, or raises ``ScriptFault``."""


class HookScript(Generic[Question, Answer]):
    """One script of a queue. Its sandbox is created at the first question, and again after a limit was hit."""

    __slots__ = ("_load", "_sandbox", "_source", "dialogue")

    def __init__(self, source: str, *, load: Loader, dialogue: Dialogue[Question, Answer]) -> None:
        self.dialogue = dialogue
        self._source = source
        self._load = load
        self._sandbox: Sandbox | None = None

    def sandbox(self) -> Sandbox:
        """Return a usable sandbox. Raises ScriptFault if the script cannot be loaded."""
        if self._sandbox is None or self._sandbox.is_spent:
            self._sandbox = None  # free the old one first, which may be large
            self._sandbox = self._load(self._source, self.dialogue.hook)
        return self._sandbox


class QueueHooks:
    """The breaker and the counts that the scripts of one queue share."""

    def __init__(self, queue: str, breaker: Breaker, timer_ns: Callable[[], int]) -> None:
        self.breaker = breaker
        self._queue = queue
        self._timer_ns = timer_ns
        self._calls = 0
        self._faults = 0
        self._bypassed = 0
        self._elapsed_ns = 0
        self._last_fault: str | None = None
        self.timings = Histogram(TIMES_S)

    def statistics(self, now_ms: int) -> HookStatistics:
        """Return the counts, and whether the breaker is open now."""
        open_by = self.breaker.cause(now_ms)
        return HookStatistics(
            calls=self._calls,
            faults=self._faults,
            bypassed=self._bypassed,
            elapsed_us=self._elapsed_ns // 1000,
            is_open=open_by is not None,
            last_fault=self._last_fault,
            trips=self.breaker.trips,
            open_by=open_by,
        )

    def ask(
        self,
        script: HookScript[Question, Answer],
        questions: Sequence[Question],
        *,
        config: Config,
        now_ms: int,
        most_ns: int,
    ) -> tuple[list[Answer | None], int]:
        """Run a script for messages, for about ``most_ns`` at most, and for one message at least.

        Return an answer or None for each message so far, and the time it took. Compiling and loading count.
        """
        answers: list[Answer | None] = []
        breaker, timer_ns, spent_ns = self.breaker, self._timer_ns, 0
        begun_ns = timer_ns()
        is_paused = False
        while len(answers) < len(questions) and spent_ns < most_ns and not is_paused and breaker.lets_through(now_ms):
            try:
                sandbox = script.sandbox()
            except ScriptFault as fault:
                self._note_fault(answers, str(fault), now_ms)
            else:
                batch = _batch(script.dialogue, questions, len(answers))
                sandbox.put(*batch, most_s=(most_ns - spent_ns) / 1e9)
                is_paused = self._ask_sandbox(sandbox, script.dialogue, answers, config=config, now_ms=now_ms)
            spent_ns = timer_ns() - begun_ns
        if is_paused:
            spent_ns = max(spent_ns, most_ns)
        self._count(len(answers), spent_ns, now_ms)
        if breaker.is_open and len(answers) < len(questions):
            bypassed = len(questions) - len(answers)
            self._bypassed += bypassed
            answers += [None] * bypassed
        return answers, spent_ns

    def _count(self, calls: int, spent_ns: int, now_ms: int) -> None:
        self._calls += calls
        self._elapsed_ns += spent_ns
        if calls:
            self.timings.note(spent_ns / calls / 1e9, calls)
        trips = self.breaker.trips
        self.breaker.note_time(spent_ns, now_ms)
        if self.breaker.trips > trips:
            _log.warning(
                "The scripts of queue %r used more than their share of the time; its circuit breaker has opened.",
                self._queue,
                extra={"queue": self._queue},
            )

    def _ask_sandbox(
        self,
        sandbox: Sandbox,
        dialogue: Dialogue[Question, Answer],
        answers: list[Answer | None],
        *,
        config: Config,
        now_ms: int,
    ) -> bool:
        """Append the answers of a sandbox, until it has no more or the breaker opens. Return whether time was up."""
        breaker = self.breaker
        is_last = is_paused = False
        while not (is_last or sandbox.is_spent or breaker.is_open):
            reply = sandbox.ask(config)
            is_last, is_paused = reply.is_last, reply.is_paused
            found, bad = dialogue.read(reply.values)
            if bad:
                self._add_one_by_one(found, answers, now_ms)
            elif found:
                answers += found
                breaker.note_answer()
            if reply.fault is not None and not breaker.is_open:
                self._note_fault(answers, reply.fault, now_ms)
        return is_paused

    def _add_one_by_one(self, found: list[Answer | None], answers: list[Answer | None], now_ms: int) -> None:
        """Append answers of which some are invalid, up to the one at which the breaker opens."""
        for answer in found:
            if answer is None:
                self._note_fault(answers, NOT_TEXT, now_ms)
                if self.breaker.is_open:
                    return
            else:
                answers.append(answer)
                self.breaker.note_answer()

    def _note_fault(self, answers: list[Answer | None], fault: str, now_ms: int) -> None:
        answers.append(None)
        self._faults += 1
        self._last_fault = fault
        self.breaker.note_fault(now_ms)
        if self.breaker.is_open:
            _log.warning(
                "The scripts of queue %r failed several times in a row; its circuit breaker has opened: %s",
                self._queue,
                fault,
                extra={"queue": self._queue},
            )


def _batch(
    dialogue: Dialogue[Question, Answer], questions: Sequence[Question], start: int
) -> tuple[list[int], list[bytes]]:
    """Return the next batch of questions as flat values."""
    numbers: list[int] = []
    texts: list[bytes] = []
    for question in questions[start : start + _MESSAGES_MAX]:
        dialogue.flatten(question, numbers, texts)
        if len(texts) > _TEXTS_MAX:
            break
    return numbers, texts
