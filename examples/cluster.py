"""Three nodes over one PostgreSQL under load: a folder store is copied in, all nodes restart, and one is killed.

Each second it prints which queues each node owns and how many messages they handled. At the end it compares what was
enqueued with what was acknowledged, and counts the errors that clients saw before the kill: there should be none. It
takes about a minute, less without a terminal, and leaves nothing behind.
"""

import asyncio
import itertools
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence

from fairlane.assembly import open_broker
from fairlane.client import AsyncClient, NewMessage, Retries
from fairlane.cluster.adoption import adopt_store
from fairlane.errors import FairlaneError
from tests.kit.servers.nodes import Cluster, Node
from tests.kit.servers.stores import PostgresServer, ServerMissing

NAMES = ("ann", "ben", "cas")
QUEUES = ("mail", "bills", "files", "pics", "news", "tags")
FROM_FOLDER = "orders"
FOLDER_MESSAGES = 500
FLAGS = ("--heartbeat-timeout-ms", "2000", "--log-level", "error")
VISIBILITY_MS = 5_000
BATCH, PAUSE_S = 10, 0.05
WIDTH = 23


class Work:
    """Producers and consumers, and a record of what they sent and handled."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.sent: set[tuple[str, str]] = set()
        self.acked: Counter[tuple[str, str]] = Counter()
        self.in_doubt: set[tuple[str, str]] = set()
        self.errors: Counter[str] = Counter()
        self.delivered = 0
        self.is_sending = True

    async def send(self, queue: str) -> None:
        """Enqueue batches. A message whose id was returned is durable."""
        numbers = itertools.count()
        while self.is_sending:
            batch = [NewMessage(payload=b"%d" % next(numbers), fairness_key=f"tenant{at % 3}") for at in range(BATCH)]
            try:
                ids = await self.client.enqueue_many(queue, batch)
            except FairlaneError as error:
                self.errors[f"enqueue: {error.code}"] += 1
            else:
                self.note_sent(queue, ids)
            await asyncio.sleep(PAUSE_S)

    def note_sent(self, queue: str, results: Sequence[str | FairlaneError]) -> None:
        """Note the ids of messages, and the errors of those that were refused."""
        self.sent |= {(queue, id_) for id_ in results if isinstance(id_, str)}
        self.errors.update(f"enqueue: {error.code}" for error in results if isinstance(error, FairlaneError))

    async def handle(self, queue: str) -> None:
        """Lease and acknowledge. If an answer is lost with its node, the outcome of the ack is unknown."""
        while True:
            try:
                messages = await self.client.lease(queue, 4 * BATCH, wait_ms=500, visibility_ms=VISIBILITY_MS)
            except FairlaneError as error:
                self.errors[f"lease: {error.code}"] += 1
                continue
            self.delivered += len(messages)
            places = [(queue, message.id) for message in messages]
            try:
                errors = await self.client.ack_many(queue, messages)
            except FairlaneError as error:
                self.errors[f"ack: {error.code}"] += 1
                self.in_doubt |= set(places)
                continue
            self.errors.update(f"ack: {error.code}" for error in errors if error is not None)
            self.acked.update(place for place, error in zip(places, errors, strict=True) if error is None)

    async def is_done(self) -> bool:
        """Return whether all queues are empty."""
        views = [await self.client.queue(queue) for queue in (*QUEUES, FROM_FOLDER)]
        return not any(view.waiting + view.leased for view in views)


async def owners(client: AsyncClient) -> dict[str, str]:
    """Return which node owns each queue."""
    view = await client.cluster()
    return {queue: group.owner for group in view.groups for queue in group.queues if group.owner is not None}


async def copy_in(work: Work, server: PostgresServer) -> None:
    """Fill a store in a folder, as a single server would, and copy it into the cluster while that works."""
    folder = server.folder / "single"
    with open_broker(folder) as broker:
        broker.create_queue(FROM_FOLDER, {"max_attempts": 0, "backoff_ms": 0})
        ids = broker.enqueue_many(FROM_FOLDER, [NewMessage(payload=b"%d" % at) for at in range(FOLDER_MESSAGES)])
    work.note_sent(FROM_FOLDER, ids)
    done = await asyncio.to_thread(adopt_store, str(folder), server.url)
    print(f"     A folder store with {done.copy.messages} messages of {FROM_FOLDER} was copied into the cluster.")


async def restart_all(nodes: list[Node]) -> None:
    """Restart one node after the other, as an upgrade does."""
    for node in nodes:
        node.signal(signal.SIGTERM)
        await asyncio.to_thread(node.wait)
        node.start()
        while await asyncio.to_thread(node.view) is None:  # noqa: ASYNC110 - the node signals nothing
            await asyncio.sleep(0.1)
        print(f"     {node.name} has restarted.", flush=True)


async def watch(work: Work, nodes: list[Node], seconds: range) -> None:
    """Print a line each second: the queues of each node, and its rate."""
    before = Counter(queue for queue, _ in work.acked)
    begun = time.monotonic()
    for second in seconds:
        await asyncio.sleep(begun + 1 + second - seconds.start - time.monotonic())
        owned = await owners(work.client)
        now = Counter(queue for queue, _ in work.acked.elements())
        cells = []
        for node in nodes:
            mine = [queue for queue in (*QUEUES, FROM_FOLDER) if owned.get(queue) == node.name]
            rate = sum(now[queue] - before[queue] for queue in mine)
            cells.append(f"down{'':{WIDTH - 4}}" if not node.is_up else f"{rate:4} {' '.join(mine):{WIDTH - 5}}")
        print(f"{second:3}  {''.join(cells)} {now.total() - before.total():5}/s", flush=True)
        before = now


def audit(work: Work, errors: Counter[str]) -> int:
    """Compare what was enqueued with what was acknowledged, and return the exit code."""
    lost = work.sent - set(work.acked) - work.in_doubt
    twice = [place for place, count in work.acked.items() if count > 1]
    print(f"\nEnqueued: {len(work.sent):,}. Acknowledged: {len(work.acked):,}. Delivered: {work.delivered:,}.")
    print(f"Errors that clients saw before the kill: {errors.total()}{f', {dict(errors)}' if errors else ''}.")
    print(f"Acks with an unknown outcome, because the answer was lost with the node: {len(work.in_doubt):,}.")
    print(f"Lost: {len(lost)}. Acknowledged twice: {len(twice)}.")
    is_clean = not (lost or twice or errors)
    print("The audit is clean: no message was lost or acknowledged twice." if is_clean else "NOT CLEAN.")
    return 0 if is_clean else 1


async def show(nodes: list[Node], server: PostgresServer) -> int:
    """Run the nodes under load, copy a store in, restart all, kill one, and audit the result."""
    calm_s, after_s = (6, 14) if sys.stdout.isatty() else (3, 8)
    client = AsyncClient(",".join(node.url for node in nodes), timeout=10, retries=Retries(longest_s=0.2))
    await client.connect()
    for queue in QUEUES:
        await client.create_queue(queue, {"max_attempts": 0, "backoff_ms": 0})
    print("  s  " + "".join(f"{node.name:{WIDTH}}" for node in nodes) + "handled")
    work = Work(client)
    tasks = [asyncio.create_task(act(queue)) for queue in QUEUES for act in (work.send, work.handle)]
    await watch(work, nodes, range(1, calm_s + 1))
    await copy_in(work, server)
    tasks.append(asyncio.create_task(work.handle(FROM_FOLDER)))
    restarting = asyncio.create_task(restart_all(nodes))
    second = calm_s
    while not restarting.done():
        second += 1
        await watch(work, nodes, range(second, second + 1))
    await restarting
    errors = work.errors.copy()
    owning = set((await owners(client)).values())
    victim = next(node for node in nodes if node.name in owning)
    victim.kill()
    print(f"     {victim.name} is killed. Its queues get new owners when its heartbeat times out.")
    await watch(work, nodes, range(second + 1, second + after_s + 1))
    work.is_sending = False
    async with asyncio.timeout(60):
        while not await work.is_done():  # noqa: ASYNC110 - the nodes signal nothing
            await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()
    return audit(work, errors)


def main() -> int:
    try:
        server = PostgresServer()
    except ServerMissing as error:
        print(f"error: This example needs PostgreSQL: {error}", file=sys.stderr)
        return 1
    print("Starting PostgreSQL and three nodes that share it ...", flush=True)
    with server:
        nodes = [Node(name, server.url, server.folder, flags=FLAGS) for name in NAMES]
        with Cluster(nodes):
            return asyncio.run(show(nodes, server))


if __name__ == "__main__":
    sys.exit(main())
