"""The front end for threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from fairlane.errors import Closed, GlobalFull, InvalidArgument, KeyFull, WaitTimedOut
from fairlane.scheduler import Backpressure, DepartureReason, KeyPolicy, Priority, Scheduler, Task, WaitReason

PATIENCE = 20.0  # seconds a test waits for another thread before it fails


def in_thread(call: Callable[[], object]) -> Future[object]:
    """Run a call in a thread of its own."""
    with_one = ThreadPoolExecutor(max_workers=1)
    future = with_one.submit(call)
    with_one.shutdown(wait=False)
    return future


def test_tasks_of_two_keys_alternate() -> None:
    """Two keys with work waiting are served in turn."""
    scheduler: Scheduler[int] = Scheduler()
    for number in range(3):
        scheduler.enqueue("a", number)
    for number in range(3):
        scheduler.enqueue("b", number)
    order = [scheduler.dequeue() for _ in range(6)]
    assert [(task.key, task.payload) for task in order] == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_nothing_is_lost_or_doubled_between_many_threads() -> None:
    """Every task of many producers reaches exactly one of many consumers, and a drain ends all of them."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=50, backpressure=Backpressure.WAIT)
    per_producer = 2_000
    seen: list[list[int]] = [[] for _ in range(5)]

    def consume(mine: list[int]) -> None:
        mine.extend(task.payload for task in scheduler)

    def produce(first: int) -> None:
        for number in range(first, first + per_producer):
            scheduler.enqueue(f"key-{number % 7}", number)

    with ThreadPoolExecutor() as pool:
        consumers = [pool.submit(consume, mine) for mine in seen]
        producers = [pool.submit(produce, first * per_producer) for first in range(4)]
        for producer in producers:
            producer.result(PATIENCE)
        scheduler.close(drain=True)
        for consumer in consumers:
            consumer.result(PATIENCE)
    assert sorted(number for mine in seen for number in mine) == list(range(4 * per_producer))


def test_no_wake_up_is_lost() -> None:
    """However enqueue and dequeue interleave, every waiting consumer gets its task."""
    scheduler: Scheduler[int] = Scheduler()
    with ThreadPoolExecutor(max_workers=4) as pool:
        for _ in range(300):
            waiting = [pool.submit(scheduler.dequeue, PATIENCE) for _ in range(4)]
            for number in range(4):
                scheduler.enqueue(f"key-{number % 2}", number)
            assert sorted(future.result(PATIENCE).payload for future in waiting) == [0, 1, 2, 3]


def test_close_ends_a_waiting_consumer() -> None:
    """A waiting consumer gets ``Closed`` when the scheduler is closed."""
    scheduler: Scheduler[int] = Scheduler()
    waiting = in_thread(scheduler.dequeue)
    scheduler.close()
    with pytest.raises(Closed):
        waiting.result(PATIENCE)


def test_close_returns_the_waiting_tasks() -> None:
    """Without a drain, the waiting tasks are returned to the caller and no consumer gets them."""
    scheduler: Scheduler[str] = Scheduler()
    scheduler.enqueue("a", "now")
    scheduler.enqueue("a", "later", due_in_ms=60_000)
    assert sorted(task.payload for task in scheduler.close()) == ["later", "now"]
    with pytest.raises(Closed):
        scheduler.try_dequeue()
    with pytest.raises(Closed):
        scheduler.enqueue("a", "too late")


def test_drain_hands_out_the_rest_first() -> None:
    """With a drain, no task is accepted, waiting tasks are served, and only then consumers get ``Closed``."""
    scheduler: Scheduler[int] = Scheduler()
    for number in range(3):
        scheduler.enqueue("a", number)
    assert scheduler.close(drain=True) == []
    with pytest.raises(Closed):
        scheduler.enqueue("a", 3)
    assert [task.payload for task in scheduler] == [0, 1, 2]


def test_drain_can_be_cut_short_but_not_the_reverse() -> None:
    """Closing again without a drain ends the drain; a drain after closing changes nothing."""
    scheduler: Scheduler[int] = Scheduler()
    scheduler.enqueue("a", 1)
    scheduler.close(drain=True)
    assert [task.payload for task in scheduler.close()] == [1]
    scheduler.close(drain=True)
    with pytest.raises(Closed):
        scheduler.dequeue()


def test_an_empty_scheduler_times_out() -> None:
    """A consumer gives up after its timeout, and nothing is taken."""
    scheduler: Scheduler[int] = Scheduler()
    with pytest.raises(WaitTimedOut) as caught:
        scheduler.dequeue(timeout=0.01)
    assert caught.value.code == "wait_timed_out"
    assert scheduler.try_dequeue() is None


def test_a_full_key_is_refused_with_a_remedy() -> None:
    """A key at its limit is refused while others are not, and the refusal is counted."""
    scheduler: Scheduler[int] = Scheduler(key_waiting_max=1)
    scheduler.enqueue("a", 1)
    with pytest.raises(KeyFull) as caught:
        scheduler.enqueue("a", 2)
    scheduler.enqueue("b", 3)
    assert caught.value.code == "key_full"
    assert "raise the key's limit" in str(caught.value)
    assert scheduler.stats().keys["a"].rejected == 1


def test_a_full_scheduler_is_refused() -> None:
    """The global limit refuses every key."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=1)
    scheduler.enqueue("a", 1)
    with pytest.raises(GlobalFull):
        scheduler.enqueue("b", 2)


def test_a_producer_waits_for_capacity() -> None:
    """With the policy to wait, a producer continues as soon as there is capacity."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=1, backpressure=Backpressure.WAIT)
    scheduler.enqueue("a", 1)
    producer = in_thread(lambda: scheduler.enqueue("b", 2))
    assert scheduler.dequeue().payload == 1
    producer.result(PATIENCE)
    assert scheduler.dequeue(PATIENCE).payload == 2


def test_a_producer_waits_by_call() -> None:
    """A timeout given with the call waits for capacity under any policy, and a cancelled task frees it."""
    scheduler: Scheduler[int] = Scheduler(key_waiting_max=1)
    first = scheduler.enqueue("a", 1)
    producer = in_thread(lambda: scheduler.enqueue("a", 2, timeout=PATIENCE))
    assert scheduler.cancel(first)
    producer.result(PATIENCE)
    assert scheduler.dequeue().payload == 2


def test_a_producer_gives_up() -> None:
    """When no capacity becomes free in time, the call raises, the task is not accepted, and the cause is attached."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=1)
    scheduler.enqueue("a", 1)
    with pytest.raises(WaitTimedOut) as caught:
        scheduler.enqueue("a", 2, timeout=0.01)
    assert isinstance(caught.value.__cause__, GlobalFull)
    assert len(scheduler) == 1


def test_one_key_may_wait_while_another_is_refused() -> None:
    """The policy to wait can be set for one key only."""
    scheduler: Scheduler[int] = Scheduler(key_waiting_max=1, enqueue_timeout=0.01)
    scheduler.set_policy("patient", KeyPolicy(waiting_max=1, backpressure=Backpressure.WAIT))
    scheduler.enqueue("patient", 1)
    scheduler.enqueue("hasty", 1)
    with pytest.raises(WaitTimedOut):
        scheduler.enqueue("patient", 2)
    with pytest.raises(KeyFull):
        scheduler.enqueue("hasty", 2)


def test_waiting_producers_are_ended_by_close() -> None:
    """A producer that waits for capacity gets ``Closed`` when the scheduler is closed."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=1, backpressure=Backpressure.WAIT)
    scheduler.enqueue("a", 1)
    producer = in_thread(lambda: scheduler.enqueue("a", 2))
    scheduler.close()
    with pytest.raises(Closed):
        producer.result(PATIENCE)


def test_capacity_of_one_key_wakes_its_own_producer() -> None:
    """Producers wait at the limit that refused them: capacity of one key never goes to a producer of another."""
    scheduler: Scheduler[str] = Scheduler(key_waiting_max=1, backpressure=Backpressure.WAIT)
    held = {key: scheduler.enqueue(key, "first") for key in ("a", "b")}
    producers = {key: in_thread(lambda key=key: scheduler.enqueue(key, "second")) for key in ("a", "b")}  # type: ignore[misc] # mypy does not type lambda defaults
    scheduler.cancel(held["b"])
    producers["b"].result(PATIENCE)
    assert not producers["a"].done()
    scheduler.cancel(held["a"])
    producers["a"].result(PATIENCE)


def test_a_throttled_task_is_handed_out_when_its_token_comes() -> None:
    """A waiting consumer is woken by the next token, without polling."""
    scheduler: Scheduler[int] = Scheduler()
    scheduler.set_throttle("api", rate=50, burst=1)
    for number in range(3):
        scheduler.enqueue("a", number, throttles=["api"])
    first, second, third = (scheduler.dequeue(PATIENCE) for _ in range(3))
    assert [first.payload, second.payload, third.payload] == [0, 1, 2]


def test_another_consumer_takes_over_the_watch() -> None:
    """When the consumer that watches for a due task gives up, another one is woken at the due time instead."""
    scheduler: Scheduler[int] = Scheduler()
    patient = in_thread(lambda: scheduler.dequeue(PATIENCE))
    scheduler.enqueue("a", 1, due_in_ms=60)
    with pytest.raises(WaitTimedOut):
        scheduler.dequeue(timeout=0.02)
    task = patient.result(PATIENCE)
    assert isinstance(task, Task)
    assert task.payload == 1


def test_a_cap_holds_until_done() -> None:
    """With a cap of one, the second task of a key waits until the first is done."""
    scheduler: Scheduler[int] = Scheduler(counts_use=True)
    scheduler.set_policy("a", KeyPolicy(cap=1))
    scheduler.enqueue("a", 1)
    second = scheduler.enqueue("a", 2)
    first = scheduler.dequeue()
    assert scheduler.try_dequeue() is None
    assert scheduler.explain(second).reason is WaitReason.CAPPED
    waiting = in_thread(lambda: scheduler.dequeue(PATIENCE))
    scheduler.done(first)
    assert waiting.result(PATIENCE) is second
    assert scheduler.in_use("a") == 1


def test_a_task_is_done_once() -> None:
    """A second ``done`` is refused and changes nothing."""
    scheduler: Scheduler[int] = Scheduler(counts_use=True)
    waiting = scheduler.enqueue("a", 1)
    with pytest.raises(InvalidArgument):
        scheduler.done(waiting)
    task = scheduler.dequeue()
    scheduler.done(task)
    with pytest.raises(InvalidArgument):
        scheduler.done(task)
    assert scheduler.in_use("a") == 0


def test_the_true_cost_is_charged() -> None:
    """A task that cost more than it said delays the next ones of its key."""
    scheduler: Scheduler[int] = Scheduler()
    for number in range(6):
        scheduler.enqueue("a", number)
        scheduler.enqueue("b", number)
    first = scheduler.dequeue()
    assert first.key == "a"
    scheduler.done(first, cost=4)
    assert [scheduler.dequeue().key for _ in range(5)] == ["b", "b", "b", "b", "a"]


def test_an_expired_task_is_reported_and_never_handed_out() -> None:
    """A task past its deadline goes to ``on_departure``, not to a consumer."""
    now_ns = 0
    gone: list[tuple[str, DepartureReason]] = []
    scheduler: Scheduler[str] = Scheduler(
        clock_ns=lambda: now_ns, on_departure=lambda task, reason: gone.append((task.payload, reason))
    )
    scheduler.enqueue("a", "late", deadline_in_ms=5)
    scheduler.enqueue("a", "live")
    now_ns = 6_000_000
    assert [task.payload for task in scheduler.try_dequeue_many(2)] == ["live"]
    assert gone == [("late", DepartureReason.EXPIRED)]
    assert scheduler.stats().total.expired == 1


def test_a_dropped_task_is_reported() -> None:
    """A task that is dropped for another goes to ``on_departure``."""
    gone: Counter[tuple[int, DepartureReason]] = Counter()
    scheduler: Scheduler[int] = Scheduler(
        waiting_max=2,
        backpressure=Backpressure.DROP_OLDEST,
        on_departure=lambda task, reason: gone.update([(task.payload, reason)]),
    )
    for number in range(3):
        scheduler.enqueue("a", number)
    assert gone == {(0, DepartureReason.DROPPED): 1}
    assert [task.payload for task in scheduler.try_dequeue_many(3)] == [1, 2]


def test_pause_and_resume_act_on_waiting_tasks() -> None:
    """A paused key is held back, and a waiting consumer is woken when it is resumed."""
    scheduler: Scheduler[int] = Scheduler()
    scheduler.enqueue("a", 1)
    scheduler.pause("a")
    assert scheduler.try_dequeue() is None
    waiting = in_thread(lambda: scheduler.dequeue(PATIENCE))
    scheduler.resume("a")
    task = waiting.result(PATIENCE)
    assert isinstance(task, Task)
    assert task.payload == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda scheduler: scheduler.enqueue("", 1), "must not be empty"),
        (lambda scheduler: scheduler.enqueue("a", 1, cost=0), "at least 1"),
        (lambda scheduler: scheduler.enqueue("a", 1, cost=1.5), "integer"),
        (lambda scheduler: scheduler.enqueue("a", 1, throttles="api"), "list of names"),
        (lambda scheduler: scheduler.enqueue("a", 1, throttles=[1]), "names"),
        (lambda scheduler: scheduler.enqueue(5, 1), "non-empty string"),
        (lambda scheduler: scheduler.enqueue(("a", ""), 1), "non-empty string"),
        (lambda scheduler: scheduler.enqueue("a", 1, priority=7), "Priority"),
        (lambda scheduler: scheduler.enqueue("a", 1, due_in_ms=-1), "due_in_ms"),
        (lambda scheduler: scheduler.enqueue("a", 1, deadline_in_ms=0.5), "deadline_in_ms"),
        (lambda scheduler: scheduler.set_throttle("api", rate="5"), "numbers"),
        (lambda _: Scheduler(backpressure="politely"), "Backpressure"),  # type: ignore[arg-type] # a wrong value is the point
        (lambda scheduler: scheduler.set_throttle("api", rate=-1), "at least 0"),
        (lambda scheduler: scheduler.set_throttle("api", rate=1, burst=0.5), "at least 1"),
        (lambda scheduler: scheduler.set_policy("a", KeyPolicy(cap=1)), "counts_use"),
        (lambda _: Scheduler(quantum=0), "quantum"),
        (lambda _: Scheduler(waiting_max=0), "waiting_max"),
    ],
)
def test_bad_values_are_refused_clearly(call: Callable[[Scheduler[int]], object], words: str) -> None:
    """A value out of range raises ``InvalidArgument`` with the reason, and nothing is accepted."""
    scheduler: Scheduler[int] = Scheduler()
    with pytest.raises(InvalidArgument, match=words) as caught:
        call(scheduler)
    assert caught.value.code == "invalid_argument"
    assert len(scheduler) == 0


def test_strict_priority_applies_across_keys() -> None:
    """With strict priority, a high task of one key goes before the normal ones of all others."""
    scheduler: Scheduler[str] = Scheduler(strict_priority=True)
    scheduler.enqueue("a", "normal")
    scheduler.enqueue("b", "high", priority=Priority.HIGH)
    assert [task.payload for task in scheduler.try_dequeue_many(2)] == ["high", "normal"]


def test_consumers_and_controls_at_once() -> None:
    """Changing weights, pauses and throttles under load loses nothing."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=None)
    total = 3_000
    is_over = threading.Event()
    seen: list[int] = []

    def disturb() -> None:
        while not is_over.is_set():
            for weight in (1, 5):
                scheduler.set_policy("key-1", KeyPolicy(weight=weight))
                scheduler.pause("key-2")
                scheduler.set_throttle("api", rate=100_000, burst=10)
                scheduler.resume("key-2")
                scheduler.remove_throttle("api")

    with ThreadPoolExecutor() as pool:
        disturber = pool.submit(disturb)
        consumer = pool.submit(lambda: seen.extend(task.payload for task in scheduler))
        for number in range(total):
            scheduler.enqueue(f"key-{number % 4}", number, throttles=["api"] if number % 3 == 0 else ())
        scheduler.close(drain=True)
        consumer.result(PATIENCE)
        is_over.set()
        disturber.result(PATIENCE)
    assert sorted(seen) == list(range(total))


@pytest.mark.parametrize(
    "call",
    [
        lambda: Scheduler(max_waiting=5),  # type: ignore[call-arg] # a wrong value is the point
        lambda: Scheduler[int]().enqueue("a", 1, dealine_in_ms=5),  # type: ignore[call-arg] # a wrong value is the point
    ],
)
def test_unknown_options_are_refused(call: Callable[[], object]) -> None:
    """A misspelt option is an error, instead of a limit that silently does not exist."""
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        call()


def test_backpressure_may_be_given_as_a_string() -> None:
    """The value of a policy stands for the policy."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=1, backpressure="reject")  # type: ignore[arg-type] # a wrong value is the point
    scheduler.enqueue("a", 1)
    with pytest.raises(GlobalFull):
        scheduler.enqueue("a", 2)


@pytest.mark.parametrize("how", ["cancelled", "expired"])
def test_a_drain_ends_for_all_consumers_however_the_last_task_leaves(how: str) -> None:
    """All consumers get ``Closed`` when the last task of a drain is cancelled or expires."""
    scheduler: Scheduler[int] = Scheduler()
    scheduler.pause("a")
    last = scheduler.enqueue("a", 1, deadline_in_ms=30 if how == "expired" else 60_000)
    consumers = [in_thread(scheduler.dequeue) for _ in range(3)]
    scheduler.close(drain=True)
    if how == "cancelled":
        assert scheduler.cancel(last)
    for consumer in consumers:
        with pytest.raises(Closed):
            consumer.result(PATIENCE)


def test_a_callback_that_raises_loses_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of ``on_departure`` is reported like a thread's exception, and the call it ran in continues."""
    reported: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda details: reported.append(str(details.exc_value)))
    now_ns = 0

    def complain(task: Task[str], reason: DepartureReason) -> None:
        raise RuntimeError(f"{task.payload} {reason.value}")

    scheduler: Scheduler[str] = Scheduler(clock_ns=lambda: now_ns, on_departure=complain)
    scheduler.enqueue("a", "late", deadline_in_ms=5)
    scheduler.enqueue("b", "live")
    now_ns = 6_000_000
    task = scheduler.try_dequeue()
    assert task is not None
    assert task.payload == "live"
    assert reported == ["late expired"]


def test_a_task_of_another_scheduler_is_left_alone() -> None:
    """Cancelling a task of another scheduler changes neither scheduler."""
    owner: Scheduler[int] = Scheduler()
    other: Scheduler[int] = Scheduler()
    task = owner.enqueue("a", 1)
    other.enqueue("a", 2)
    assert not other.cancel(task)
    assert other.explain(task).reason is WaitReason.NOT_WAITING
    assert owner.dequeue() is task
    assert len(other) == 1


def test_the_repr_shows_the_state() -> None:
    """It shows how many tasks wait and whether the scheduler is open, and an empty scheduler is true."""
    scheduler: Scheduler[int] = Scheduler()
    assert scheduler
    assert repr(scheduler) == "<Scheduler: 0 waiting, open>"
    scheduler.enqueue("a", 1)
    scheduler.close(drain=True)
    assert repr(scheduler) == "<Scheduler: 1 waiting, draining>"
