"""The fair scheduler compared with a plain FIFO: ``python -m benchmarks.scheduler [--quick] [--check]``.

Both move the same item objects, a batch out and the same batch back in, with a standing backlog. Rates are per second
of CPU time on one core; "x FIFO" compares within this run.
"""

from __future__ import annotations

import asyncio
import queue
import random
import sys
import threading
import tracemalloc
from collections import deque
from collections.abc import Callable
from functools import partial

from benchmarks.report import Options, Report, Work, parse_options, rates
from fairlane.scheduler import AsyncScheduler, Item, Kernel, KeyPolicy, Scheduler
from fairlane.scheduler.compiled import is_compiled

BATCH = 100
KEY_COUNTS = (1, 10, 1_000, 100_000)
CROWDS = (1, 4, 16)
"""How many threads produce, and as many consume."""
MILLION = 1_000_000
Crowd = Callable[[int, int], int]
"""Moves a number of tasks with a number of threads on each side, and returns how many different ones arrived."""


def main() -> None:
    options = parse_options(__doc__ or "")
    report = Report(options)
    compare_with_fifo(report, options)
    compare_throttled(report, options)
    compare_idle(report, options)
    compare_kinds_of_key(report, options)
    compare_faces(report, options)
    compare_contention(report, options)
    measure_memory(report)
    report.finish()


def arrivals(keys: int, *, is_mixed: bool, nested: bool = False) -> list[Item]:
    """Return a backlog as it would arrive: random keys, each item created when it arrives."""
    chance = random.Random(keys)
    names = [f"tenant-{number}" for number in range(keys)] * max(4, min(1_000, 20_000 // keys))
    chance.shuffle(names)
    costs = (1, 2, 3) if is_mixed else (1,)
    if nested:
        return [Item(("group-" + name[-1], name), cost=chance.choice(costs)) for name in names]
    return [Item(name, cost=chance.choice(costs)) for name in names]


def kernel_with(items: list[Item], *, is_mixed: bool = False, **settings: int) -> Kernel[Item]:
    kernel: Kernel[Item] = Kernel(**settings)  # type: ignore[arg-type] # whole numbers only, here
    if is_mixed:
        kernel.set_policy_provider(lambda key: KeyPolicy(weight=1 + int(str(key).removeprefix("tenant-")) % 5))
    kernel.offer_many(items, 0)
    return kernel


def moving(kernel: Kernel[Item], count: int, batch: int = BATCH) -> Work:
    def move() -> int:
        moved = 0
        while moved < count:
            items = kernel.take(batch, 0)
            kernel.offer_many(items, 0)
            moved += len(items)
        return moved

    return move


def moving_fifo(items: list[Item], count: int) -> Work:
    fifo = deque(items)

    def move() -> int:
        for _ in range(count // BATCH):
            batch = [fifo.popleft() for _ in range(BATCH)]
            fifo.extend(batch)
        return count

    return move


def compare_with_fifo(report: Report, options: Options) -> None:
    count = 150_000 if options.quick else 400_000
    report.heading("Batches of 100, take and offer, against collections.deque")
    rows = []
    measured: dict[tuple[str, int], float] = {}
    for load, is_mixed in (("weights 1-5, costs 1-3", True), ("weight 1, cost 1", False)):
        backlogs = [arrivals(keys, is_mixed=is_mixed) for keys in KEY_COUNTS]
        works = [moving_fifo(backlogs[1], count)]
        works += [moving(kernel_with(items, is_mixed=is_mixed), count) for items in backlogs]
        fifo, *kernels = rates(works, options.repeats)
        rows.append([f"FIFO, {load}", "", f"{fifo / 1e6:.2f}", "1.000", ""])
        for keys, rate in zip(KEY_COUNTS, kernels, strict=True):
            measured[load, keys] = rate
            rows.append(
                [f"fair, {load}", f"{keys:,}", f"{rate / 1e6:.2f}", f"{rate / fifo:.3f}", f"{rate / kernels[1]:.2f}"]
            )
    report.table(["load", "keys", "M items/s", "x FIFO", "x 10 keys"], rows)
    mixed = "weights 1-5, costs 1-3"
    report.goal(f"10 keys, {mixed}", measured=measured[mixed, 10] / 1e6, least=3, unit=" M/s")
    report.goal("100,000 keys against 10", measured=measured[mixed, 100_000] / measured[mixed, 10], least=0.35)


def compare_throttled(report: Report, options: Options) -> None:
    """Measure what 9,000 throttled keys cost 1,000 others."""
    count = 150_000 if options.quick else 400_000
    free = arrivals(1_000, is_mixed=False)
    alone = kernel_with(free)
    beside = kernel_with(arrivals(1_000, is_mixed=False))
    for number in range(9_000):
        beside.throttles.set(f"throttle-{number}", rate=0.001, burst=1, tokens=0, now_ms=0)
        beside.offer_many([Item(f"throttled-{number}", throttles=[f"throttle-{number}"]) for _ in range(10)], 0)
    without, with_throttled = rates([moving(alone, count), moving(beside, count)], options.repeats)
    report.heading("1,000 keys alone, and beside 9,000 that are throttled")
    rows = [
        ["alone", f"{without / 1e6:.2f}", "1.000"],
        ["9 of 10 keys throttled", f"{with_throttled / 1e6:.2f}", f"{with_throttled / without:.3f}"],
    ]
    report.table(["keys", "M items/s", "ratio"], rows)
    report.goal("90 % of keys throttled", measured=with_throttled / without, least=0.95)


def compare_idle(report: Report, options: Options) -> None:
    """Measure what a million idle keys cost a pick. Only taking a long backlog is timed."""
    count = 100_000 if options.quick else 200_000
    alone: Kernel[Item] = Kernel()
    beside = kernel_with([Item(f"idle-{number}") for number in range(MILLION)], idle_keys_max=2 * MILLION)
    beside.take(MILLION, 0)
    best = [0.0, 0.0]
    for _ in range(options.repeats):
        for at, kernel in enumerate((alone, beside)):
            kernel.offer_many([Item(f"tenant-{number % 1_000}") for number in range(count)], 0)
            [rate] = rates([partial(taking, kernel, count)], 1)
            best[at] = max(best[at], rate)
    report.heading(f"Picks from 1,000 keys alone, and with {beside.known_keys() - 1_000:,} idle ones remembered")
    rows = [
        ["alone", f"{best[0] / 1e6:.2f}", "1.000"],
        ["with the idle ones", f"{best[1] / 1e6:.2f}", f"{best[1] / best[0]:.3f}"],
    ]
    report.table(["keys", "M picks/s", "ratio"], rows)
    report.goal("a million idle keys", measured=best[1] / best[0], least=0.95)


def taking(kernel: Kernel[Item], count: int) -> int:
    for _ in range(count // BATCH):
        kernel.take(BATCH, 0)
    return count


def compare_kinds_of_key(report: Report, options: Options) -> None:
    """Compare the short path through the kernel with the long one, and batches with single calls."""
    count = 40_000 if options.quick else 150_000
    plain = arrivals(100, is_mixed=False)
    throttled = [Item(item.key, throttles=["unlimited"]) for item in plain]
    works = [
        moving(kernel_with(plain), count),
        moving(kernel_with(arrivals(100, is_mixed=False)), count, batch=1),
        moving(kernel_with(arrivals(100, is_mixed=False, nested=True)), count),
        moving(kernel_with(throttled), count),
    ]
    names = ["plain, batches of 100", "plain, one at a time", "paths of two names", "a throttle on every item"]
    measured = rates(works, options.repeats)
    report.heading("Kinds of keys and calls, 100 keys")
    rows = [
        [name, f"{rate / 1e6:.2f}", f"{rate / measured[0]:.2f}"] for name, rate in zip(names, measured, strict=True)
    ]
    report.table(["kind", "M items/s", "ratio"], rows)
    least = 1.5 if is_compiled() else 0.7
    for name, rate in zip(names[2:], measured[2:], strict=True):
        report.goal(name, measured=rate / 1e6, least=least, unit=" M/s")


def compare_faces(report: Report, options: Options, *, tasks: int | None = None) -> None:
    """Compare the front ends with the queues of the standard library, with one producer and one consumer."""
    count = tasks or (10_000 if options.quick else 40_000)
    works = [
        lambda: through_queue(count),
        lambda: through_scheduler(count),
        lambda: asyncio.run(through_async_queue(count)),
        lambda: asyncio.run(through_async_scheduler(count)),
    ]
    queue_rate, scheduler_rate, async_queue_rate, async_scheduler_rate = rates(works, options.repeats)
    report.heading("Faces, one task at a time, producer and consumer")
    rows = [
        ["queue.Queue", f"{queue_rate / 1e3:.0f}", "1.00"],
        ["Scheduler", f"{scheduler_rate / 1e3:.0f}", f"{scheduler_rate / queue_rate:.2f}"],
        ["asyncio.Queue", f"{async_queue_rate / 1e3:.0f}", "1.00"],
        ["AsyncScheduler", f"{async_scheduler_rate / 1e3:.0f}", f"{async_scheduler_rate / async_queue_rate:.2f}"],
    ]
    report.table(["between", "k tasks/s", "ratio"], rows)


def through_queue(count: int) -> int:
    """Move tasks from one thread to another, and return how many different ones arrived."""
    return queue_crowd(1, count)


def through_scheduler(count: int) -> int:
    """Move tasks from one thread to another, and return how many different ones arrived."""
    return scheduler_crowd(1, count)


def compare_contention(report: Report, options: Options, *, tasks: int | None = None) -> None:
    """Measure what many producers and consumers on one scheduler cost, compared with one of each."""
    count = tasks or (8_000 if options.quick else 40_000)
    rows, ratio = [], 0.0
    crowds: list[tuple[str, Crowd]] = [("queue.Queue", queue_crowd), ("Scheduler", scheduler_crowd)]
    for name, crowd in crowds:
        measured = rates([partial(crowd, threads, count) for threads in CROWDS], options.repeats)
        ratio = measured[-1] / measured[0]
        for threads, rate in zip(CROWDS, measured, strict=True):
            rows.append([name, f"{threads} + {threads}", f"{rate / 1e3:.0f}", f"{rate / measured[0]:.2f}"])
    report.heading("Contention: threads that produce and as many that consume, one task at a time")
    report.table(["between", "threads", "k tasks/s", "x 1 + 1"], rows)
    report.goal("16 producers and 16 consumers against one of each", measured=ratio, least=0.6)


def queue_crowd(threads: int, count: int) -> int:
    tasks: queue.Queue[int] = queue.Queue()
    return crowded(threads, count, lambda _key, number: tasks.put(number), tasks.get)


def scheduler_crowd(threads: int, count: int) -> int:
    scheduler: Scheduler[int] = Scheduler(waiting_max=None)
    return crowded(threads, count, scheduler.enqueue, lambda: scheduler.dequeue().payload)


def crowded(threads: int, count: int, put: Callable[[str, int], object], get: Callable[[], int]) -> int:
    """Move tasks from producers, each with a key of its own, to as many consumers. Return how many different ones
    arrived.
    """
    each = count // threads
    arrived: list[int] = []

    def produce(at: int) -> None:
        key = f"tenant-{at}"
        for number in range(at * each, (at + 1) * each):
            put(key, number)

    def consume() -> None:
        arrived.extend(get() for _ in range(each))

    crowd = [threading.Thread(target=produce, args=(at,)) for at in range(threads)]
    crowd += [threading.Thread(target=consume) for _ in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    return len(set(arrived))


async def through_async_queue(count: int) -> int:
    tasks: asyncio.Queue[int] = asyncio.Queue(maxsize=100)

    async def produce() -> None:
        for number in range(count):
            await tasks.put(number)

    producer = asyncio.create_task(produce())
    arrived = [await tasks.get() for _ in range(count)]
    await producer
    return len(set(arrived))


async def through_async_scheduler(count: int) -> int:
    scheduler: AsyncScheduler[int] = AsyncScheduler(waiting_max=100)

    async def produce() -> None:
        for number in range(count):
            await scheduler.enqueue("tenant", number, timeout=60)

    producer = asyncio.create_task(produce())
    arrived = [(await scheduler.dequeue()).payload for _ in range(count)]
    await producer
    return len(set(arrived))


def measure_memory(report: Report) -> None:
    report.heading("Memory")
    tracemalloc.start()
    names = [f"tenant-{number}" for number in range(100_000)]
    kernel: Kernel[Item] = Kernel(idle_keys_max=MILLION)
    start = tracemalloc.get_traced_memory()[0]
    items = [Item(name) for name in names for _ in range(2)]
    made = tracemalloc.get_traced_memory()[0]
    kernel.offer_many(items, 0)
    offered = tracemalloc.get_traced_memory()[0]
    kernel.offer_many([Item(name) for name in names], 0)
    more = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    rows = [
        ["an item", f"{(made - start) / len(items):.0f}"],
        ["a key with items waiting", f"{(offered - made) / len(names):.0f}"],
        ["one more item waiting, item included", f"{(more - offered) / len(names):.0f}"],
    ]
    report.table(["what", "bytes"], rows)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Stopped.")
