"""What the faces for threads and for asyncio have in common: a kernel with a clock, statistics and errors."""

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
from fairlane.scheduler.task import Task
from fairlane.scheduler.waiting_producers import WaitingProducers

P = TypeVar("P")

_MS_NS = 1_000_000


class Options(TypedDict, total=False):
    """What a scheduler can be made with; see ``Kernel`` for those not told here.

    Attributes:
        waiting_max: how many tasks may wait in all; 10 000 unless said otherwise, None for any number.
        enqueue_timeout: how many seconds a producer waits for room where the policy is to wait.
        counts_use: count tasks in use from hand-out to ``done``, which caps need.
        on_departure: called with each task that expires or is dropped, and why. It is called in the middle of other
            calls, under the lock if there is one, so it must be quick; what it raises is reported and goes no further.
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
    """What can be said of a task when it is enqueued.

    Attributes:
        cost: what it takes from its key's share, a whole number of at least 1.
        priority: its rank among the tasks of its key.
        throttles: names of the token buckets that must all have a token before it goes.
        due_in_ms: hand it out no earlier than this from now.
        deadline_in_ms: let it expire if it has not been handed out this long from now.
    """

    cost: int
    priority: Priority
    throttles: Sequence[str]
    due_in_ms: int | None
    deadline_in_ms: int | None


class FrontEnd(ABC, Generic[P]):
    """The part of a scheduler that never waits.

    Each call is atomic: it has happened as a whole or, when it raises, not at all.
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
        **rules: Any,  # noqa: ANN401 - the rest of Options, for the kernel, which refuses what it does not know
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
        """Let one waiting consumer look again; called under the guard."""

    # ------------------------------------------------------------------------------------------------- consumers

    def try_dequeue(self) -> Task[P] | None:
        """Return the next task if one may go now, else None; never waits.

        Raises:
            Closed: the scheduler is closed, and drained if that was asked for.
        """
        tasks = self.try_dequeue_many(1)
        return tasks[0] if tasks else None

    def try_dequeue_many(self, count: int) -> list[Task[P]]:
        """Return up to ``count`` tasks that may go now, in the order of their turns; never waits.

        Raises:
            Closed: the scheduler is closed, and drained if that was asked for.
        """
        with self._guard:
            tasks = self._take(count)
            if not tasks:
                self._refuse_if_finished()
            return tasks

    def done(self, task: Task[P], *, cost: int | None = None) -> None:
        """Note that a task handed out is finished, however it ended.

        Needed where tasks in use are counted, for caps; elsewhere only to tell the true cost.

        Args:
            task: what was handed out.
            cost: what it truly cost; the difference to what was said at ``enqueue`` is charged to its key.

        Raises:
            InvalidArgument: the task is not handed out, or done already, or its cost is below 0.
        """
        if cost is not None and (type(cost) is not int or cost < 0):
            raise InvalidArgument(f"A true cost is a whole number of at least 0, not {cost!r}.")
        with self._guard:
            if not task.is_out:
                raise InvalidArgument(f"{task!r} is not handed out, or was done before.")
            if self._counts_use:
                with _translated():
                    self._kernel.release(task.key)
            task.is_out = False
            if cost is not None:
                self._kernel.settle(task.key, cost - task.cost, task.priority)
            self._wake_consumer()

    # ------------------------------------------------------------------------------------------------- producers

    def cancel(self, task: Task[P]) -> bool:
        """Take a waiting task back; its place is free at once. Returns False if it does not wait any more."""
        with self._guard:
            if not self._kernel.cancel(task):
                return False
            self._tallies.count(task.key, Happening.CANCELLED)
            self._producers.freed_by((task,))
            self._tell_if_finished()
            return True

    def explain(self, task: Task[P]) -> Explanation:
        """Tell why a task waits."""
        with self._guard:
            explanation = self._kernel.explain(task, self._now_ms())
            self._reap()
            return explanation

    # -------------------------------------------------------------------------------------------------- controls

    def set_policy(self, key: Key, policy: KeyPolicy) -> None:
        """Set weight, cap and limits of a key; acts on what waits at once.

        Raises:
            InvalidArgument: the policy has a cap and tasks in use are not counted.
        """
        with self._changing():
            self._kernel.set_policy(key, policy)

    def clear_policy(self, key: Key) -> None:
        """Go back to the provider's policy for a key, or the default."""
        with self._changing():
            self._kernel.clear_policy(key)

    def set_policy_provider(self, provider: PolicyProvider | None) -> None:
        """Set a function that is asked for the policy of each key without one of its own."""
        with self._changing():
            self._kernel.set_policy_provider(provider)

    def refresh_policy(self, key: Key) -> None:
        """Ask the provider again about one key."""
        with self._changing():
            self._kernel.refresh_policy(key)

    def pause(self, key: Key) -> None:
        """Hand out nothing of a key, or of the keys below it, until it is resumed."""
        with self._changing():
            self._kernel.pause(key)

    def resume(self, key: Key) -> None:
        """Undo ``pause``."""
        with self._changing():
            self._kernel.resume(key)

    def set_throttle(self, name: str, *, rate: float, burst: float | None = None) -> None:
        """Set or change a token bucket: ``rate`` tokens a second, at most ``burst`` at once; acts at once.

        Raises:
            InvalidArgument: a number is out of range.
        """
        with self._changing():
            self._kernel.throttles.set(name, rate=rate, burst=burst, now_ms=self._now_ms())

    def remove_throttle(self, name: str) -> bool:
        """Lift a throttle; what it held back is free at once. Returns whether there was one."""
        with self._changing():
            return self._kernel.throttles.remove(name, now_ms=self._now_ms())

    def close(self, *, drain: bool = False) -> list[Task[P]]:
        """Accept nothing more, and wake everybody who waits.

        With ``drain`` the tasks that wait are still handed out, and consumers are told ``Closed`` once there are none.
        Without, they are taken out and returned, and consumers are told at once. Closing again without ``drain`` ends a
        drain early; nothing opens a scheduler again.
        """
        with self._guard:
            self._is_draining = drain and (self._is_draining or not self._is_closed)
            self._is_closed = True
            left = [] if drain else [task for task in self._kernel.waiting_items() if self.cancel(task)]
            self._producers.wake_all()
            self._wake_everybody()
            return left

    # --------------------------------------------------------------------------------------------------- reading

    def stats(self) -> Statistics:
        """Return a snapshot of what happened so far, in all and by key."""
        with self._guard:
            self._pass_time()
            return self._tallies.snapshot(self._waiting_max)

    def waiting(self, key: Key) -> int:
        """Return how many tasks of a key, or of the keys below it, wait."""
        with self._guard:
            return self._kernel.waiting(key)

    def in_use(self, key: Key) -> int:
        """Return how many tasks of a key, or of the keys below it, are handed out and not done."""
        with self._guard:
            return self._kernel.in_use(key)

    def __len__(self) -> int:
        return len(self._kernel)

    def __bool__(self) -> bool:
        return True  # an empty scheduler is a scheduler

    def __repr__(self) -> str:
        state = "open" if not self._is_closed else "draining" if self._is_draining else "closed"
        return f"<{type(self).__name__}: {len(self)} waiting, {state}>"

    # ---------------------------------------------------------------------------------------------------- inside

    @abstractmethod
    def _report(self, error: Exception) -> None:
        """Report what a callback raised, there being nobody to raise it to."""

    @abstractmethod
    def _wake_everybody(self) -> None:
        """Let every waiting consumer look again; called under the guard."""

    def _now_ms(self) -> int:
        return self._clock_ns() // _MS_NS

    def _task(self, key: Key, payload: P, options: TaskOptions) -> Task[P]:
        now_ns = self._clock_ns()
        terms: dict[str, Any] = options  # type: ignore[assignment] # a dict of our own, made by the call
        for name in ("due", "deadline"):
            wait_ms = terms.pop(f"{name}_in_ms", None) if terms else None
            if wait_ms is not None:
                if type(wait_ms) is not int or wait_ms < 0:
                    raise InvalidArgument(f"{name}_in_ms is a whole number of at least 0, not {wait_ms!r}.")
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
            raise Closed("The scheduler accepts nothing more.")
        refusal = self._kernel.offer(task, self._now_ms())
        if refusal is None:
            self._tallies.count(task.key, Happening.ENQUEUED)
            self._wake_consumer()
        self._reap()
        return refusal

    def _held_back(self, task: Task[P], timeout: float | None, woken_at: Key | EllipsisType | None) -> Refusal | None:
        """Offer a task for somebody who would wait for room. Returns what to wait for, or None if it is accepted.

        Raises if waiting is neither asked for nor the policy. A place that woke the caller at one limit, while another
        holds it back, is passed on.
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
        """Return the error for a producer that has waited long enough."""
        error = WaitTimedOut(f"No room was made within {seconds} s.")
        error.__cause__ = self._rejection(refusal)
        return error

    def _rejection(self, refusal: Refusal) -> FairlaneError:
        """Count a refusal and return the error that tells of it."""
        self._tallies.count(refusal.item.key, Happening.REJECTED)
        if refusal.reason is RefusalReason.KEY_FULL:
            return KeyFull(f"Key {refusal.key!r} has {refusal.limit} tasks waiting, as many as it may.")
        return GlobalFull(f"{refusal.limit} tasks wait, as many as may.")

    def _take(self, count: int) -> list[Task[P]]:
        """Take tasks out and let others know; called under the guard."""
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
            self._tell_if_finished()
            if self._kernel.has_ready():
                self._wake_consumer()
        return tasks

    def _reap(self) -> None:
        """Tell of what has left by itself; the kernel knows from its last call.

        A callback may cause further departures. They are told of by the round that called it, one after the other.
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
        self._tell_if_finished()

    def _depart(self, task: Task[P], reason: DepartureReason) -> None:
        is_expired = reason is DepartureReason.EXPIRED
        self._tallies.count(task.key, Happening.EXPIRED if is_expired else Happening.DROPPED)
        self._producers.freed_by((task,))
        if self._on_departure is not None:
            try:
                self._on_departure(task, reason)
            except Exception as error:  # noqa: BLE001 - it may raise anything, and what is under way must go on
                self._report(error)

    def _pass_time(self) -> None:
        """Let what is due by now happen."""
        self._kernel.take(0, self._now_ms())
        self._reap()

    def _is_finished(self) -> bool:
        return self._is_closed and (not self._is_draining or len(self._kernel) == 0)

    def _tell_if_finished(self) -> None:
        if self._is_finished():
            self._wake_everybody()

    def _refuse_if_finished(self) -> None:
        if self._is_finished():
            raise Closed("The scheduler is closed and has nothing more to hand out.")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Make a change that may let tasks go or make room."""
        with self._guard, _translated():
            yield
            self._producers.wake_all()
            self._wake_consumer()


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the kernel's complaints about values into errors of our own."""
    try:
        yield
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
