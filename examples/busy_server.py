"""A server with one noisy tenant, quiet ones, a throttled and a capped one, to watch in a browser.

It prints the dashboard's address and runs until Ctrl-C, or for three seconds without a terminal. Everything is in
memory.
"""

import asyncio
import contextlib
import random
import re
import sys
from collections.abc import AsyncIterator

from fairlane.client import AsyncClient, NewMessage

TENANTS = {"acme": 300, "bakery": 25, "school": 20, "clinic": 15, "post": 9, "museum": 6}
"""Messages per second that each tenant sends."""
POLICY = {
    "fairness_key_from": "header:tenant",
    "throttles_from": ["smtp-{tenant}"],
    "weights": {"clinic": 3},
    "caps": {"museum": 1},
    "key_waiting_max": 4_000,
    "max_attempts": 2,
    "backoff_ms": 200,
}
FAILING = 0.2
ERRORS = ["550 mailbox unavailable", "421 try again later", "451 greylisted"]
TICK_S = 0.1
TRIAL_S = 3
WORKERS = ("mail-worker-1", "mail-worker-2")
RATE = 60
"""Messages per second that a worker handles; both workers together handle less than acme alone sends."""
ON_ENQUEUE = """
function on_enqueue(msg)
  return { fairness_key = msg.headers["tenant"], cost = msg.payload_size > 1000 and 5 or 1 }
end
"""


@contextlib.asynccontextmanager
async def server(*flags: str) -> AsyncIterator[str]:
    """Start a server process with its data in memory, and yield its address."""
    command = [sys.executable, "-m", "fairlane.server", "--port", "0", "--data", ":memory:", "--log-level", "error"]
    process = await asyncio.create_subprocess_exec(*command, *flags, stdout=asyncio.subprocess.PIPE)
    try:
        line = b"" if process.stdout is None else await process.stdout.readline()
        found = re.search(r"http://\S+", line.decode())
        if found is None:
            raise SystemExit("The server has not started.")
        yield found.group()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def set_up(client: AsyncClient) -> None:
    """Create the queues and a throttle."""
    await client.create_queue("mail", POLICY)
    await client.create_queue("invoices", {"on_enqueue": ON_ENQUEUE})
    await client.create_queue("exports")
    await client.set_throttle("smtp-post", rate=4, burst=4)
    await client.enqueue_many("exports", [NewMessage(payload=b"a table", fairness_key="acme")] * 40)


async def send(client: AsyncClient, tenant: str, rate: int) -> None:
    """Send mails as a tenant, and an invoice now and then."""
    owed = 0.0
    while True:
        owed += rate * TICK_S
        count, owed = int(owed), owed % 1
        headers = {"tenant": tenant}
        if count:
            await client.enqueue_many("mail", [NewMessage(payload=b"Dear customer", headers=headers)] * count)
        if random.random() < TICK_S:
            order = f"order-{random.randrange(10_000)}"
            await client.enqueue("invoices", b"an invoice", headers=headers, correlation_id=order)
        await asyncio.sleep(TICK_S)


async def deliver(client: AsyncClient, worker: str) -> None:
    """Handle mails from a stream; some of them fail."""
    async with client.consume("mail", credit=6, owner=worker) as stream:
        async for message in stream:
            await asyncio.sleep(1 / RATE)
            if message.fairness_key == "bakery" and random.random() < FAILING:
                await message.nack(random.choice(ERRORS))
            else:
                await message.ack()


async def book(client: AsyncClient) -> None:
    """Handle invoices a few at a time, and store their progress as workflow state."""
    while True:
        messages = await client.lease("invoices", 5, wait_ms=5_000, owner="bookkeeper")
        for message in messages:
            await message.set_state(b'{"step": "booked"}')
        await asyncio.sleep(5 * TICK_S)
        await client.ack_many("invoices", messages)


async def load(address: str) -> None:
    """Send and handle until cancelled."""
    async with AsyncClient(address, dedup=False) as client, asyncio.TaskGroup() as tasks:
        await set_up(client)
        for tenant, rate in TENANTS.items():
            tasks.create_task(send(client, tenant, rate))
        for worker in WORKERS:
            tasks.create_task(deliver(client, worker))
        tasks.create_task(book(client))


async def main() -> None:
    async with server(*sys.argv[1:]) as address:
        print(f"Open {address}/ to see who is noisy, who waits and why. Press Ctrl-C to stop.", flush=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if sys.stdout.isatty() else TRIAL_S):
                await load(address)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
