"""The front end for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import TypeVar, Unpack

from fairlane.errors import Closed, WaitTimedOut
from fairlane.scheduler.frontend import FrontEnd, Options, TaskOptions
from fairlane.scheduler.item import Key
from fairlane.scheduler.tasks import Task

P = TypeVar("P")

_LONGEST_S = 86_400.0 * 365
_SECOND_NS = 1_000_000_000
_MS_NS = 1_000_000


class Scheduler(FrontEnd[P]):
    """A fair queue between threads: producers call ``enqueue``, consumers ``dequeue``.

    One lock guards one kernel. It never polls: a waiting consumer is woken by a change, and one consumer at a time, the
    watcher, also waits for the next instant at which an item becomes eligible by itself. A consumer that takes a task
    and sees another ready wakes the next consumer, so wake-ups are passed on and never lost.
    """

    def __init__(self, *, clock_ns: Callable[[], int] = time.monotonic_ns, **options: Unpack[Options]) -> None:
        """Create an empty scheduler.

        Args:
            clock_ns: a clock that never runs backwards, in nanoseconds.
            **options: see ``fairlane.scheduler.Options``.

        Raises:
            InvalidArgument: an option is out of range.
        """
        self._lock = threading.RLock()
        self._has_work = threading.Condition(self._lock)
        self._idle_consumers = 0
        self._watched_ms: int | None = None
        super().__init__(clock_ns, self._lock, **options)

    def enqueue(
        self,
        key: Key,
        payload: P,
        *,
        timeout: float | None = None,
        **options: Unpack[TaskOptions],
    ) -> Task[P]:
        """Enqueue a task.

        Args:
            key: the tenant that the work is for.
            payload: the work.
            timeout: how many seconds to wait for capacity; by default the backpressure policy decides.
            **options: cost, priority, throttles, delay and deadline: see ``fairlane.scheduler.TaskOptions``.

        Returns:
            The task, as a handle for ``cancel`` and ``explain``.

        Raises:
            KeyFull, GlobalFull: a limit is reached and the policy is not to wait.
            WaitTimedOut: no capacity became free in time.
            Closed: the scheduler is closed.
            InvalidArgument: a value is out of range.
        """
        task = self._task(key, payload, options)
        seconds = self._enqueue_timeout if timeout is None else timeout
        give_up_ns = self._clock_ns() + _in_ns(seconds)
        woken_at: Key | EllipsisType | None = ...
        with self._lock:
            while (refusal := self._held_back(task, timeout, woken_at)) is not None:
                if not self._wait_for_capacity(refusal.key, give_up_ns):
                    raise self._gave_up(refusal, seconds)
                woken_at = refusal.key
        return task

    def dequeue(self, timeout: float | None = None) -> Task[P]:
        """Return the next task, waiting until one may go.

        Args:
            timeout: the longest wait in seconds; None waits without limit.

        Raises:
                WaitTimedOut: no task could go in time.
                Closed: the scheduler is closed and, if it was closed with ``drain``, empty.
        """
        give_up_ns = None if timeout is None else self._clock_ns() + _in_ns(timeout)
        with self._lock:
            try:
                while not (tasks := self._take(1)):
                    self._refuse_if_finished()
                    if give_up_ns is not None and self._clock_ns() >= give_up_ns:
                        raise WaitTimedOut(f"No task could go within {timeout} s.")
                    self._wait_for_work(give_up_ns)
                return tasks[0]
            finally:
                self._leave_a_watcher()

    def __iter__(self) -> Iterator[Task[P]]:
        """Yield tasks as they become eligible, until the scheduler is closed."""
        while True:
            try:
                task = self.dequeue()
            except Closed:
                return
            yield task

    def _wait_for_capacity(self, limit: Key | None, give_up_ns: int) -> bool:
        """Wait at a limit until there may be capacity. Return False when it is time to give up."""
        capacity = threading.Condition(self._lock)
        is_woken = False

        def wake() -> None:
            nonlocal is_woken
            is_woken = True
            capacity.notify()

        self._producers.join(limit, wake)
        try:
            while not is_woken:
                now_ns = self._clock_ns()
                if now_ns >= give_up_ns:
                    return False
                event_ms = self._kernel.next_event_at()  # an expiry frees capacity, perhaps without any consumer
                until_ns = give_up_ns if event_ms is None else min(give_up_ns, event_ms * _MS_NS)
                capacity.wait(_wait_seconds(until_ns - now_ns))
                self._pass_time()
        finally:
            if not is_woken:
                self._producers.quit(limit, wake)
        return True

    def _wait_for_work(self, give_up_ns: int | None) -> None:
        event_ms = self._kernel.next_event_at()
        # One watcher is enough: all others sleep without a timeout. A consumer replaces the watcher only if it knows of
        # an earlier event, which happens when a lane was parked after the watcher had gone to sleep.
        is_watcher = event_ms is not None and (self._watched_ms is None or event_ms < self._watched_ms)
        until_ns = give_up_ns
        if is_watcher and event_ms is not None:
            self._watched_ms = event_ms
            until_ns = event_ms * _MS_NS if until_ns is None else min(until_ns, event_ms * _MS_NS)
        self._idle_consumers += 1
        try:
            self._has_work.wait(None if until_ns is None else _wait_seconds(until_ns - self._clock_ns()))
        finally:
            self._idle_consumers -= 1
            if is_watcher and self._watched_ms == event_ms:
                self._watched_ms = None

    def _leave_a_watcher(self) -> None:
        """Wake another idle consumer, now that this one leaves, if a task is ready or an event is left without a
        watcher.
        """
        if not self._idle_consumers:
            return
        is_unwatched = self._watched_ms is None and self._kernel.next_event_at() is not None
        if is_unwatched or self._kernel.has_ready():
            self._has_work.notify()

    def _report(self, error: Exception) -> None:
        details = (type(error), error, error.__traceback__, threading.current_thread())
        threading.excepthook(threading.ExceptHookArgs(details))

    def _wake_consumer(self) -> None:
        if self._idle_consumers:
            self._has_work.notify()

    def _wake_all_consumers(self) -> None:
        self._has_work.notify_all()


def _in_ns(seconds: float) -> int:
    """Return a timeout in nanoseconds; an infinite one becomes a very long one."""
    return round(min(seconds, _LONGEST_S) * _SECOND_NS)


def _wait_seconds(wait_ns: int) -> float:
    """Return how long to wait at once. Conditions limit it, so waiters check the clock again afterwards."""
    return min(max(0, wait_ns) / _SECOND_NS, _LONGEST_S)
