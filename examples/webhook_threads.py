"""Webhooks of many merchants, delivered by a pool of threads.

One merchant has 300 events to deliver, three others have five each. The slow endpoint of one of them takes only one
call at a time (a cap), and the whole service may call a shared gateway 200 times a second (a throttle).
Run it with ``python examples/webhook_threads.py``.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from fairlane.scheduler import KeyPolicy, Scheduler, Task

WORKERS = 4


@dataclass(frozen=True, slots=True)
class Webhook:
    merchant: str
    number: int


class Gateway:
    """Stands in for the network: records the order of calls, and how many ran at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self.most_at_once: Counter[str] = Counter()
        self.order: list[str] = []

    def call(self, webhook: Webhook) -> None:
        with self._lock:
            self.order.append(webhook.merchant)
            self._running[webhook.merchant] += 1
            running = self._running[webhook.merchant]
            self.most_at_once[webhook.merchant] = max(self.most_at_once[webhook.merchant], running)
        threading.Event().wait(0.002)
        with self._lock:
            self._running[webhook.merchant] -= 1


def deliver(scheduler: Scheduler[Webhook], gateway: Gateway) -> None:
    """Run one worker: take the next task, call the gateway, report it as done."""
    for task in scheduler:
        try:
            gateway.call(task.payload)
        finally:
            scheduler.done(task)


def main() -> None:
    scheduler: Scheduler[Webhook] = Scheduler(counts_use=True)
    scheduler.set_policy("slow-shop", KeyPolicy(cap=1))
    scheduler.set_throttle("gateway", rate=200, burst=20)
    tasks: list[Task[Webhook]] = []
    for merchant, events in (("mega-mart", 300), ("slow-shop", 5), ("bakery", 5), ("florist", 5)):
        for number in range(events):
            webhook = Webhook(merchant, number)
            tasks.append(scheduler.enqueue(merchant, webhook, throttles=["gateway"]))
    print(f"{len(scheduler)} webhooks wait. The last one of mega-mart: {scheduler.explain(tasks[299])}")

    gateway = Gateway()
    workers = [threading.Thread(target=deliver, args=(scheduler, gateway)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    scheduler.close(drain=True)
    for worker in workers:
        worker.join()

    for merchant in ("slow-shop", "bakery", "florist", "mega-mart"):
        last = len(gateway.order) - gateway.order[::-1].index(merchant)
        print(f"{merchant:>10}: all delivered after {last} of {len(gateway.order)} calls")
    print(f"slow-shop had at most {gateway.most_at_once['slow-shop']} call at a time")
    print(f"bakery waited {scheduler.stats().keys['bakery'].wait.max_ns / 1e6:.0f} ms at most")


if __name__ == "__main__":
    main()
