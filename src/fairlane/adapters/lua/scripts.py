"""The scripts of one queue: their sandboxes, created when needed, their circuit breaker and their counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Final, Generic, TypeVar

from fairlane.adapters.lua.sandbox import Config, HookName, Sandbox, SandboxLimits, ScriptFault, Value
from fairlane.model.histogram import Histogram
from fairlane.model.views import HookStatistics

_MESSAGES_MAX: Final = 64
"""Messages passed to Lua at once. Each crossing releases the GIL, so one crossing per message would be expensive."""
_TEXTS_MAX: Final = 2_048
"""The number of texts after which a batch is full: messages with many headers are passed in smaller batches."""
NOT_TEXT: Final = "returned a string that is not UTF-8"
TIMES_S: Final = (1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025)

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Dialogue(Generic[Question, Answer]):
    """The conversion of one kind of question to flat values, and of flat values to answers."""

    __slots__ = ("flatten", "hook", "read")

    def __init__(
        self,
        hook: HookName,
        *,
        flatten: Callable[[Question, list[int], list[bytes]], None],
        read: Callable[[tuple[Value, ...]], tuple[list[Answer | None], int]],
    ) -> None:
        self.hook: HookName = hook
        self.flatten = flatten
        self.read = read


class HookScript(Generic[Question, Answer]):
    """One script of a queue. Its sandbox is created at the first question, and again after a limit was hit."""

    __slots__ = ("_limits", "_queue", "_sandbox", "_source", "dialogue")

    def __init__(self, source: str, *, queue: str, dialogue: Dialogue[Question, Answer], limits: SandboxLimits) -> None:
        self.dialogue = dialogue
        self._source = source
        self._queue = queue
        self._limits = limits
        self._sandbox: Sandbox | None = None

    def sandbox(self) -> Sandbox:
        """Return a usable sandbox.

        Raises:
            ScriptFault: the script cannot be loaded.
        """
        if self._sandbox is None or self._sandbox.is_spent:
            self._sandbox = None  # free the old one first, which may be large
            self._sandbox = Sandbox(self._source, hook=self.dialogue.hook, queue=self._queue, limits=self._limits)
        return self._sandbox


class Breaker:
    """A circuit breaker that bypasses scripts for a while after consecutive faults."""

    __slots__ = ("_cooldown_ms", "_faults_in_row", "_open_until_ms", "_threshold", "trips")

    def __init__(self, *, threshold: int, cooldown_ms: int) -> None:
        self._threshold = threshold
        self._cooldown_ms = cooldown_ms
        self._faults_in_row = 0
        self._open_until_ms: int | None = None
        self.trips = 0

    @property
    def is_open(self) -> bool:
        """Whether scripts were bypassed at the last call."""
        return self._open_until_ms is not None

    def lets_through(self, now_ms: int) -> bool:
        """Return whether scripts run now. After the cooldown the count of faults starts from zero."""
        if self._open_until_ms is not None and now_ms >= self._open_until_ms:
            self.close()
        return self._open_until_ms is None

    def close(self) -> None:
        """Run scripts again, regardless of earlier faults."""
        self._faults_in_row = 0
        self._open_until_ms = None

    def note_answer(self) -> None:
        """Record that a script has answered."""
        self._faults_in_row = 0

    def note_fault(self, now_ms: int) -> None:
        """Record that a script has failed, and open the breaker at the threshold."""
        self._faults_in_row += 1
        if self._faults_in_row >= self._threshold:
            self._open_until_ms = now_ms + self._cooldown_ms
            self.trips += 1


class QueueHooks:
    """The breaker and the counts that the scripts of one queue share."""

    def __init__(self, breaker: Breaker) -> None:
        self.breaker = breaker
        self._calls = 0
        self._faults = 0
        self._bypassed = 0
        self._elapsed_ns = 0
        self._last_fault: str | None = None
        self.timings = Histogram(TIMES_S)

    def statistics(self) -> HookStatistics:
        """Return the counts."""
        return HookStatistics(
            calls=self._calls,
            faults=self._faults,
            bypassed=self._bypassed,
            elapsed_us=self._elapsed_ns // 1000,
            is_open=self.breaker.is_open,
            last_fault=self._last_fault,
            trips=self.breaker.trips,
        )

    def ask(
        self, script: HookScript[Question, Answer], questions: Sequence[Question], *, config: Config, now_ms: int
    ) -> list[Answer | None]:
        """Run a script for messages. Return an answer or None for each."""
        answers: list[Answer | None] = []
        begun_ns = perf_counter_ns()
        while len(answers) < len(questions) and self.breaker.lets_through(now_ms):
            try:
                sandbox = script.sandbox()
            except ScriptFault as fault:
                self._note_fault(answers, str(fault), now_ms)
                continue
            sandbox.put(*_batch(script.dialogue, questions, len(answers)))
            self._ask_sandbox(sandbox, script.dialogue, answers, config=config, now_ms=now_ms)
        elapsed_ns = perf_counter_ns() - begun_ns
        self._calls += len(answers)
        self._elapsed_ns += elapsed_ns
        if answers:
            self.timings.note(elapsed_ns / len(answers) / 1e9, len(answers))
        bypassed = len(questions) - len(answers)
        self._bypassed += bypassed
        return answers + [None] * bypassed if bypassed else answers

    def _ask_sandbox(
        self,
        sandbox: Sandbox,
        dialogue: Dialogue[Question, Answer],
        answers: list[Answer | None],
        *,
        config: Config,
        now_ms: int,
    ) -> None:
        """Append the answers of a sandbox, until it has no more or the breaker opens."""
        breaker = self.breaker
        is_last = False
        while not (is_last or sandbox.is_spent or breaker.is_open):
            reply = sandbox.ask(config)
            is_last = reply.is_last
            found, bad = dialogue.read(reply.values)
            if bad:
                self._add_one_by_one(found, answers, now_ms)
            elif found:
                answers += found
                breaker.note_answer()
            if reply.fault is not None and not breaker.is_open:
                self._note_fault(answers, reply.fault, now_ms)

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
