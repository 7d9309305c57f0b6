"""A fan-out in asyncio: many tenants' requests to slow services, a few at a time, fairly.

One tenant requests 200 pages, two others ten each. Ten requests may be in flight, an urgent one goes before the others
of its tenant, and requests that miss their deadline are reported.
Run it with ``python examples/fan_out_asyncio.py``.
"""

from __future__ import annotations

import asyncio

from fairlane.scheduler import AsyncScheduler, DepartureReason, Priority, Task


async def main() -> None:
    finished: list[str] = []
    expired: list[str] = []

    def departed(task: Task[str], reason: DepartureReason) -> None:
        if reason is DepartureReason.EXPIRED:
            expired.append(task.payload)

    scheduler: AsyncScheduler[str] = AsyncScheduler(on_departure=departed)

    async def fetch(task: Task[str]) -> None:
        await asyncio.sleep(0.005)  # stands in for a slow service
        finished.append(task.payload)

    for page in range(200):
        await scheduler.enqueue("crawler", f"crawler page {page}")
    for page in range(10):
        await scheduler.enqueue("news", f"news page {page}")
        await scheduler.enqueue("shop", f"shop page {page}")
    await scheduler.enqueue("news", "news front page", priority=Priority.HIGH)
    await scheduler.enqueue("crawler", "crawler page of interest only now", deadline_in_ms=20)

    scheduler.close(drain=True)
    await scheduler.dispatch(fetch, in_flight=10)

    print(f"First ten: {', '.join(finished[:10])}")
    for tenant in ("news", "shop", "crawler"):
        last = max(at for at, page in enumerate(finished, start=1) if page.startswith(tenant))
        print(f"{tenant:>8}: all finished after {last} of {len(finished)} requests")
    print(f"Expired: {', '.join(expired)}")


if __name__ == "__main__":
    asyncio.run(main())
