"""The common part of the front ends for threads and for asyncio: a kernel with a clock, statistics and errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import EllipsisType
from typing import Any, Generic, TypedDict, TypeVar

from fairlane.errors import Closed, FairlaneError, GlobalFull, InvalidArgument, KeyFull, WaitTimedOut
from fairlane.scheduler.explanation import Explanation
from fairlane.scheduler.item import Key, Priority
from fairlane.scheduler.kernel import Kernel
from fairlane.scheduler.keys import PolicyProvider
from fairlane.scheduler.policy import Backpressure, DepartureReason, KeyPolicy, Refusal, RefusalReason
from fairlane.scheduler.statistics import Happening, Statistics, Tallies
from fairlane.scheduler.tasks import Task, WaitingProducers

P = TypeVar("P")

_MS_NS = 1_000_000


class Options(TypedDict, total=False):
    """The options of a scheduler; see ``Kernel`` for those not listed here.

    Attributes:
        waiting_max: the limit on waiting tasks in total; 10 000 by default, None for no limit.
        enqueue_timeout: how many seconds a producer waits for capacity where the backpressure policy is to wait.
        counts_use: count tasks as in use from hand-out to ``done``. Caps need it.
        on_departure: called with each task that expires or is dropped, and the reason. It runs inside other calls,
            under the lock if there is one, so it must be fast. An exception it raises is reported and not propagated.
    """

    quantum: int
    waiting_max: int | None
    key_waiting_max: int | None
    backpressure: Backpressure
    enqueue_timeout: float
    strict_priority: bool
    counts_use: bool
    idle_keys_max: int
    on_departure: Callable[[Task[Any], DepartureReason], None] | None


class TaskOptions(TypedDict, total=False):
    """The options of a task when it is enqueued.

    Attributes:
        cost: what it takes from its key's share, an integer of at least 1.
        priority: its rank among the tasks of its key.
        throttles: names of the token buckets that must all have a token before it goes.
        due_in_ms: the delay before it may be handed out.
        deadline_in_ms: the time after which it expires if it has not been handed out.
    """

    cost: int
    priority: Priority
    throttles: Sequence[str]
    due_in_ms: int | None
    deadline_in_ms: int | None


class FrontEnd(ABC, Generic[P]):
    """The calls of a scheduler that never wait.

    Each call is atomic: it happens completely or, if it raises, not at all.
    """

    def __init__(
        self,
        clock_ns: Callable[[], int],
        guard: AbstractContextManager[Any],
        *,
        waiting_max: int | None = 10_000,
        counts_use: bool = False,
        idle_keys_max: int = 1024,
        enqueue_timeout: float = 30.0,
        on_departure: Callable[[Task[Any], DepartureReason], None] | None = None,
        **rules: Any,  # noqa: ANN401 - the other Options, passed to the kernel, which rejects unknown ones
    ) -> None:
        with _translated():
            self._kernel: Kernel[Task[P]] = Kernel(
                waiting_max=waiting_max, counts_use=counts_use, idle_keys_max=idle_keys_max, **rules
            )
        self._waiting_max = waiting_max
        self._counts_use = counts_use
        self._enqueue_timeout = enqueue_timeout
        self._on_departure = on_departure
        self._tallies = Tallies(keys_max=max(1, idle_keys_max))
        self._clock_ns = clock_ns
        self._guard = guard
        self._producers = WaitingProducers()
        self._is_closed = False
        self._is_draining = False
        self._is_reaping = False

    @abstractmethod
    def _wake_consumer(self) -> None:
        """Wake one waiting consumer; called under the guard."""

    # ------------------------------------------------------------------------------------------------- consumers

    def try_dequeue(self) -> Task[P] | None:
        """Return the next task if one may go now, else None. Never waits.

        Raises:
            Closed: the scheduler is closed and, if it was closed with ``drain``, empty.
        """
        tasks = self.try_dequeue_many(1)
        return tasks[0] if tasks else None

    def try_dequeue_many(self, count: int) -> list[Task[P]]:
        """Return up to ``count`` tasks that may go now, in the order of their turns. Never waits.

        Raises:
            Closed: the scheduler is closed and, if it was closed with ``drain``, empty.
        """
        with self._guard:
            tasks = self._take(count)
            if not tasks:
                self._refuse_if_finished()
            return tasks

    def done(self, task: Task[P], *, cost: int | None = None) -> None:
        """Mark a task that was handed out as finished, successfully or not.

        Required where tasks in use are counted, for caps; otherwise only needed to report the true cost.

        Args:
            task: the task that was handed out.
            cost: its true cost; the difference to the cost given at ``enqueue`` is charged to its key.

        Raises:
            InvalidArgument: the task is not handed out, or was done before, or the cost is negative.
        """
        if cost is not None and (type(cost) is not int or cost < 0):
            raise InvalidArgument(f"The cost of a task must be an integer of at least 0, got {cost!r}.")
        with self._guard:
            if not task.is_out:
                raise InvalidArgument(
                    f"{task!r} is not handed out, or was marked done before. Call done() once per task."
                )
            if self._counts_use:
                with _translated():
                    self._kernel.release(task.key)
            task.is_out = False
            if cost is not None:
                self._kernel.settle(task.key, cost - task.cost, task.priority)
            self._wake_consumer()

    # ------------------------------------------------------------------------------------------------- producers

    def cancel(self, task: Task[P]) -> bool:
        """Remove a waiting task; its space is free at once. Return False if it no longer waits."""
        with self._guard:
            if not self._kernel.cancel(task):
                return False
            self._tallies.count(task.key, Happening.CANCELLED)
            self._producers.freed_by((task,))
            self._wake_if_finished()
            return True

    def explain(self, task: Task[P]) -> Explanation:
        """Return why a task waits."""
        with self._guard:
            explanation = self._kernel.explain(task, self._now_ms())
            self._reap()
            return explanation

    # -------------------------------------------------------------------------------------------------- controls

    def set_policy(self, key: Key, policy: KeyPolicy) -> None:
        """Set weight, cap and limits of a key. The change acts on waiting tasks at once.

        Raises:
            InvalidArgument: the policy has a cap and tasks in use are not counted.
        """
        with self._changing():
            self._kernel.set_policy(key, policy)

    def clear_policy(self, key: Key) -> None:
        """Return a key to the provider's policy, or the default."""
        with self._changing():
            self._kernel.clear_policy(key)

    def set_policy_provider(self, provider: PolicyProvider | None) -> None:
        """Set a function that returns the policy of each key without an explicit one."""
        with self._changing():
            self._kernel.set_policy_provider(provider)

    def refresh_policy(self, key: Key) -> None:
        """Call the provider again for one key."""
        with self._changing():
            self._kernel.refresh_policy(key)

    def pause(self, key: Key) -> None:
        """Stop handing out tasks of a key, and of the keys below it, until it is resumed."""
        with self._changing():
            self._kernel.pause(key)

    def resume(self, key: Key) -> None:
        """Undo ``pause``."""
        with self._changing():
            self._kernel.resume(key)

    def set_throttle(self, name: str, *, rate: float, burst: float | None = None, charges_cost: bool = False) -> None:
        """Set or change a throttle: ``rate`` tokens per second, at most ``burst`` at once. It acts at once.

        With ``charges_cost`` a task takes as many tokens as it costs, instead of one.

        Raises:
            InvalidArgument: a number is out of range.
        """
        with self._changing():
            throttles, now_ms = self._kernel.throttles, self._now_ms()
            throttles.set(name, rate=rate, burst=burst, charges_cost=charges_cost, now_ms=now_ms)

    def remove_throttle(self, name: str) -> bool:
        """Remove a throttle; what it held back may go at once. Return whether there was one."""
        with self._changing():
            return self._kernel.throttles.remove(name, now_ms=self._now_ms())

    def close(self, *, drain: bool = False) -> list[Task[P]]:
        """Stop accepting tasks and wake all waiting producers and consumers.

        With ``drain``, waiting tasks are still handed out, and consumers get ``Closed`` once none are left. Without it,
        waiting tasks are removed and returned, and consumers get ``Closed`` at once. Closing again without ``drain``
        ends a drain early. A closed scheduler cannot be reopened.
        """
        with self._guard:
            self._is_draining = drain and (self._is_draining or not self._is_closed)
            self._is_closed = True
            left = [] if drain else [task for task in self._kernel.waiting_items() if self.cancel(task)]
            self._producers.wake_all()
            self._wake_all_consumers()
            return left

    # --------------------------------------------------------------------------------------------------- reading

    def stats(self) -> Statistics:
        """Return a snapshot of the counts so far, in total and by key."""
        with self._guard:
            self._pass_time()
            return self._tallies.snapshot(self._waiting_max)

    def waiting(self, key: Key) -> int:
        """Return how many tasks of a key, including the keys below it, wait."""
        with self._guard:
            return self._kernel.waiting(key)

    def in_use(self, key: Key) -> int:
        """Return how many tasks of a key, including the keys below it, are handed out and not done."""
        with self._guard:
            return self._kernel.in_use(key)

    def __len__(self) -> int:
        return len(self._kernel)

    def __bool__(self) -> bool:
        return True  # without this, __len__ would make an empty scheduler false

    def __repr__(self) -> str:
        state = "open" if not self._is_closed else "draining" if self._is_draining else "closed"
        return f"<{type(self).__name__}: {len(self)} waiting, {state}>"

    # ---------------------------------------------------------------------------------------------------- inside

    @abstractmethod
    def _report(self, error: Exception) -> None:
        """Report the exception of a callback, which has no caller to propagate to."""

    @abstractmethod
    def _wake_all_consumers(self) -> None:
        """Wake every waiting consumer; called under the guard."""

    def _now_ms(self) -> int:
        return self._clock_ns() // _MS_NS

    def _task(self, key: Key, payload: P, options: TaskOptions) -> Task[P]:
        now_ns = self._clock_ns()
        terms: dict[str, Any] = options  # type: ignore[assignment] # our own dict, made by the call's **options
        for name in ("due", "deadline"):
            wait_ms = terms.pop(f"{name}_in_ms", None) if terms else None
            if wait_ms is not None:
                if type(wait_ms) is not int or wait_ms < 0:
                    raise InvalidArgument(f"{name}_in_ms must be an integer of at least 0, got {wait_ms!r}.")
                terms[f"{name}_ms"] = now_ns // _MS_NS + wait_ms
        try:
            task = Task(key, payload, **terms)
        except ValueError as error:
            raise InvalidArgument(str(error)) from error
        task.enqueued_ns = now_ns
        return task

    def _offer(self, task: Task[P]) -> Refusal | None:
        """Offer a task to the kernel; called under the guard."""
        if self._is_closed:
            raise Closed("The scheduler is closed and accepts no more tasks.")
        refusal = self._kernel.offer(task, self._now_ms())
        if refusal is None:
            self._tallies.count(task.key, Happening.ENQUEUED)
            self._wake_consumer()
        self._reap()
        return refusal

    def _held_back(self, task: Task[P], timeout: float | None, woken_at: Key | EllipsisType | None) -> Refusal | None:
        """Offer a task of a producer that may wait for capacity. Return what to wait for, or None if it is accepted.

        Raises if the caller gave no timeout and the policy is not to wait. If the producer was woken at one limit but
        another limit holds it back now, the wake-up is passed on: the space it was woken for is still free.
        """
        refusal = self._offer(task)
        if refusal is None:
            return None
        if timeout is None and not refusal.should_wait:
            raise self._rejection(refusal)
        if woken_at is not ... and woken_at != refusal.key:
            self._producers.pass_on(woken_at)
        return refusal

    def _gave_up(self, refusal: Refusal, seconds: float) -> WaitTimedOut:
        """Return the error for a producer whose wait has timed out."""
        error = WaitTimedOut(f"No capacity became free within {seconds} s.")
        error.__cause__ = self._rejection(refusal)
        return error

    def _rejection(self, refusal: Refusal) -> FairlaneError:
        """Count a refusal and return its error."""
        self._tallies.count(refusal.item.key, Happening.REJECTED)
        if refusal.reason is RefusalReason.KEY_FULL:
            return KeyFull(f"Key {refusal.key!r} has reached its limit of {refusal.limit} waiting tasks.")
        return GlobalFull(f"The scheduler has reached its limit of {refusal.limit} waiting tasks.")

    def _take(self, count: int) -> list[Task[P]]:
        """Take tasks out and wake the producers and consumers that this concerns; called under the guard."""
        if self._is_closed and not self._is_draining:
            return []
        now_ns = self._clock_ns()
        tasks = self._kernel.take(count, now_ns // _MS_NS)
        for task in tasks:
            task.is_out = True
            self._tallies.count_dequeued(task.key, max(0, now_ns - task.enqueued_ns), task.cost)
        self._reap()
        if tasks:
            self._producers.freed_by(tasks)
            self._wake_if_finished()
            # Wake-ups form a chain: one change wakes one consumer, and each consumer that finds more wakes the next.
            # So no wake-up is lost, and a single task never wakes a whole crowd.
            if self._kernel.has_ready():
                self._wake_consumer()
        return tasks

    def _reap(self) -> None:
        """Report the tasks that expired or were dropped during the kernel's last call.

        A callback may cause further departures. They are reported by the outer call, one after the other, so callbacks
        never nest.
        """
        if self._is_reaping or not self._kernel.has_departures():
            return
        self._is_reaping = True
        try:
            while self._kernel.has_departures():
                for departure in self._kernel.reap():
                    self._depart(departure.item, departure.reason)
        finally:
            self._is_reaping = False
        self._wake_if_finished()

    def _depart(self, task: Task[P], reason: DepartureReason) -> None:
        is_expired = reason is DepartureReason.EXPIRED
        self._tallies.count(task.key, Happening.EXPIRED if is_expired else Happening.DROPPED)
        self._producers.freed_by((task,))
        if self._on_departure is not None:
            try:
                self._on_departure(task, reason)
            except Exception as error:  # noqa: BLE001 - a callback may raise anything; the call it runs in must go on
                self._report(error)

    def _pass_time(self) -> None:
        """Advance the kernel to the present instant."""
        self._kernel.take(0, self._now_ms())
        self._reap()

    def _is_finished(self) -> bool:
        return self._is_closed and (not self._is_draining or len(self._kernel) == 0)

    def _wake_if_finished(self) -> None:
        if self._is_finished():
            self._wake_all_consumers()

    def _refuse_if_finished(self) -> None:
        if self._is_finished():
            raise Closed("The scheduler is closed and has no more tasks to hand out.")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Make a change that may free tasks or capacity."""
        with self._guard, _translated():
            yield
            self._producers.wake_all()
            self._wake_consumer()


@contextmanager
def _translated() -> Iterator[None]:
    """Convert the kernel's ``ValueError`` into ``InvalidArgument``."""
    try:
        yield
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
