"""Lua hooks: ``on_enqueue`` and ``on_failure``, each in a sandbox of its own, behind a circuit breaker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Final

import msgspec

from fairlane.adapters.lua.breaker import Breaker
from fairlane.adapters.lua.compiled import CompiledScripts
from fairlane.adapters.lua.prelude import CPU_CLOCK
from fairlane.adapters.lua.sandbox import Config, HookName, Sandbox, SandboxLimits, ScriptFault
from fairlane.adapters.lua.scripts import NOT_TEXT, TIMES_S, Answer, Dialogue, HookScript, Question, QueueHooks
from fairlane.adapters.lua.shapes import (
    flatten_enqueue,
    flatten_failure,
    read_enqueue_answers,
    read_failure_answers,
)
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.histogram import Histogram
from fairlane.model.hook_limits import NO_HOOK_LIMITS, HookLimits
from fairlane.model.limits import HOOK_MEMORY_BYTES_MIN, SCRIPT_LENGTH_MAX
from fairlane.model.views import HookStatistics, HookTrial
from fairlane.ports.hooks import UNLIMITED_NS, EnqueueQuestion, FailureQuestion

_TRIAL_S_MAX: Final = 60.0
_ON_ENQUEUE: Final = Dialogue("on_enqueue", flatten=flatten_enqueue, read=read_enqueue_answers)
_ON_FAILURE: Final = Dialogue("on_failure", flatten=flatten_failure, read=read_failure_answers)


class _Queue(msgspec.Struct):
    hooks: QueueHooks
    limits: SandboxLimits
    on_enqueue: HookScript[EnqueueQuestion, EnqueueAnswer] | None = None
    on_failure: HookScript[FailureQuestion, FailureAnswer] | None = None


class LuaHooks:
    """Runs the scripts of queues in sandboxes. Implements the ``Hooks`` port.

    For one thread at a time. The time limit of a message is measured in CPU time of the whole process, the only clock
    in a Lua runtime, so other busy threads make it end sooner. What a queue uses is measured in real time, since that
    is what others wait for.

    Attributes:
        spent_ns: the time that scripts have used so far, with checks, trials and compiling.
    """

    def __init__(
        self,
        config: Config,
        *,
        timeout_ms: int = 10,
        memory_bytes_max: int = 1_048_576,
        breaker_threshold: int = 3,
        breaker_cooldown_ms: int = 10_000,
        breaker_share_percent: int = 20,
        breaker_window_ms: int = 10_000,
        clock: str = CPU_CLOCK,
        timer_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        """Create a runner without scripts.

        Args:
            config: returns the value for ``fairlane.get`` in a hook of a queue, or None if there is none.
            timeout_ms: how long a script may take for one message.
            memory_bytes_max: how much memory a script may use.
            breaker_threshold: the number of consecutive faults after which the scripts of a queue are bypassed.
            breaker_cooldown_ms: how long they are bypassed.
            breaker_share_percent: the part of the time that the scripts of a queue may use before they are bypassed.
            breaker_window_ms: the time of which they may use that part at once.
            clock: a chunk of Lua that returns the clock in seconds of the time limit.
            timer_ns: returns the time that calls are measured by.

        Raises:
            ValueError: a number is not an integer, or too small.
        """
        _require("timeout_ms", timeout_ms, least=1)
        _require("memory_bytes_max", memory_bytes_max, least=HOOK_MEMORY_BYTES_MIN)
        _require("breaker_threshold", breaker_threshold, least=1)
        _require("breaker_cooldown_ms", breaker_cooldown_ms, least=0)
        _require("breaker_share_percent", breaker_share_percent, least=1)
        _require("breaker_window_ms", breaker_window_ms, least=1)
        self._config = config
        self._limits = SandboxLimits(timeout_ms=timeout_ms, memory_bytes_max=memory_bytes_max, clock=clock)
        self._breaker = partial(
            Breaker,
            threshold=breaker_threshold,
            cooldown_ms=breaker_cooldown_ms,
            share_percent=breaker_share_percent,
            window_ms=breaker_window_ms,
        )
        self._threshold = breaker_threshold
        self._cooldown_ms = breaker_cooldown_ms
        self._timer_ns = timer_ns
        self._compiled = CompiledScripts()
        self._queues: dict[str, _Queue] = {}
        self.spent_ns = 0

    def check(
        self, *, on_enqueue: str | None, on_failure: str | None, limits: HookLimits = NO_HOOK_LIMITS
    ) -> str | None:
        """Return why these scripts cannot be set under these limits, or None if they can. Changes nothing."""
        begun_ns, own = self._timer_ns(), self._sandbox_limits(limits)
        try:
            scripts: tuple[tuple[HookName, str | None], ...] = (("on_enqueue", on_enqueue), ("on_failure", on_failure))
            for hook, script in scripts:
                if script is not None and self._compiled.get(_cache_key(hook, script, own)) is None:
                    try:
                        self._load("", own, script, hook)
                    except ScriptFault as fault:
                        return f"{hook}: {fault}"
            return None
        finally:
            self.spent_ns += self._timer_ns() - begun_ns

    def set(
        self, queue: str, *, on_enqueue: str | None, on_failure: str | None, limits: HookLimits = NO_HOOK_LIMITS
    ) -> None:
        """Set the scripts of a queue, which ``check`` has accepted. Its breaker closes and its counts continue."""
        known = self._queues.get(queue)
        if known is None:
            known = self._queues[queue] = _Queue(QueueHooks(queue, self._breaker(), self._timer_ns), self._limits)
        known.limits = own = self._sandbox_limits(limits)
        known.hooks.breaker.close()
        known.hooks.breaker.set_limits(
            threshold=_given_or(limits.breaker_threshold, self._threshold),
            cooldown_ms=_given_or(limits.breaker_cooldown_ms, self._cooldown_ms),
        )
        known.on_enqueue = self._script(on_enqueue, queue, own, _ON_ENQUEUE)
        known.on_failure = self._script(on_failure, queue, own, _ON_FAILURE)

    def remove(self, queue: str) -> None:
        """Forget a queue and its scripts."""
        self._queues.pop(queue, None)

    def on_enqueue(
        self, queue: str, questions: Sequence[EnqueueQuestion], now_ms: int, *, most_ns: int = UNLIMITED_NS
    ) -> list[EnqueueAnswer | None] | None:
        """Run the script for messages, for about ``most_ns`` at most, and for one message at least.

        Return an answer or None for each message so far, or None if the queue has no such script.
        """
        known = self._queues.get(queue)
        if known is None or known.on_enqueue is None:
            return None
        answers, spent_ns = known.hooks.ask(
            known.on_enqueue, questions, config=self._config, now_ms=now_ms, most_ns=most_ns
        )
        self.spent_ns += spent_ns
        return answers

    def on_failure(self, queue: str, question: FailureQuestion, now_ms: int) -> FailureAnswer | None:
        """Run the script for a failed attempt. Return None if there is no script or no answer."""
        known = self._queues.get(queue)
        if known is None or known.on_failure is None:
            return None
        answers, spent_ns = known.hooks.ask(
            known.on_failure, (question,), config=self._config, now_ms=now_ms, most_ns=UNLIMITED_NS
        )
        self.spent_ns += spent_ns
        return answers[0]

    def try_on_enqueue(self, queue: str, script: str, question: EnqueueQuestion) -> HookTrial:
        """Run a script on a sample, in a temporary sandbox."""
        return self._try(script, queue, _ON_ENQUEUE, question)

    def try_on_failure(self, queue: str, script: str, question: FailureQuestion) -> HookTrial:
        """Run a script on a sample, in a temporary sandbox."""
        return self._try(script, queue, _ON_FAILURE, question)

    def statistics(self, queue: str, now_ms: int) -> HookStatistics:
        """Return the counts of a queue, and whether its breaker is open now."""
        known = self._queues.get(queue)
        if known is None:
            return HookStatistics(calls=0, faults=0, bypassed=0, elapsed_us=0, is_open=False, last_fault=None)
        return known.hooks.statistics(now_ms)

    def timings(self, queue: str) -> Histogram:
        """Return the distribution of seconds per message; messages of one batch count with their mean."""
        known = self._queues.get(queue)
        return Histogram(TIMES_S) if known is None else known.hooks.timings

    def _script(
        self, source: str | None, queue: str, limits: SandboxLimits, dialogue: Dialogue[Question, Answer]
    ) -> HookScript[Question, Answer] | None:
        if source is None:
            return None
        return HookScript(source, load=partial(self._load, queue, limits), dialogue=dialogue)

    def _load(self, queue: str, limits: SandboxLimits, script: str, hook: HookName) -> Sandbox:
        """Return a sandbox with a script, compiled now unless it has been before."""
        if len(script) > SCRIPT_LENGTH_MAX:
            raise ScriptFault(f"the script is longer than {SCRIPT_LENGTH_MAX} characters")
        cache_key = _cache_key(hook, script, limits)
        known = self._compiled.get(cache_key)
        sandbox = Sandbox(script if known is None else known, hook=hook, queue=queue, limits=limits)
        if known is None:
            self._compiled.keep(cache_key, sandbox.compiled())
        return sandbox

    def _sandbox_limits(self, limits: HookLimits) -> SandboxLimits:
        if limits.timeout_ms is None and limits.memory_bytes_max is None:
            return self._limits
        return SandboxLimits(
            timeout_ms=_given_or(limits.timeout_ms, self._limits.timeout_ms),
            memory_bytes_max=_given_or(limits.memory_bytes_max, self._limits.memory_bytes_max),
            clock=self._limits.clock,
        )

    def _try(
        self,
        script: str,
        queue: str,
        dialogue: Dialogue[Question, EnqueueAnswer] | Dialogue[Question, FailureAnswer],
        question: Question,
    ) -> HookTrial:
        numbers: list[int] = []
        texts: list[bytes] = []
        dialogue.flatten(question, numbers, texts)
        loaded_ns = begun_ns = self._timer_ns()
        try:
            known = self._queues.get(queue)
            sandbox = self._load(queue, self._limits if known is None else known.limits, script, dialogue.hook)
            loaded_ns = self._timer_ns()  # only the call counts for the caller: loading happens once
            sandbox.put(numbers, texts, most_s=_TRIAL_S_MAX)
            reply = sandbox.ask(self._config)
        except ScriptFault as fault:
            return HookTrial(answer=None, fault=str(fault), elapsed_us=(self._timer_ns() - begun_ns) // 1000)
        finally:
            self.spent_ns += self._timer_ns() - begun_ns
        elapsed_us = (self._timer_ns() - loaded_ns) // 1000
        if reply.fault is not None:
            return HookTrial(answer=None, fault=reply.fault, elapsed_us=elapsed_us)
        (answer,), bad = dialogue.read(reply.values)
        return HookTrial(answer=answer, fault=NOT_TEXT if bad else None, elapsed_us=elapsed_us)


def _cache_key(hook: HookName, script: str, limits: SandboxLimits) -> str:
    """Return the key of a compiled script. Whether it can be used depends on its limits and the function it defines."""
    return f"{hook} {limits.timeout_ms} {limits.memory_bytes_max}\n{script}"


def _require(name: str, number: int, *, least: int) -> None:
    if type(number) is not int or number < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {number!r}.")


def _given_or(given: int | None, default: int) -> int:
    return default if given is None else given
