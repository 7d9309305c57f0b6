"""Clients of a cluster that enqueue, lease, stream and ack continuously, and log what they see."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, Final

from fairlane.client import AsyncClient, AsyncMessage, NewMessage, Retries
from fairlane.client.transport.http import HttpTransport
from fairlane.client.transport.websocket import WebSocketTransport
from fairlane.errors import FairlaneError, LeaseMismatch, MessageNotFound, QueueElsewhere, QueueExists, QueueMoving
from fairlane.verbs.methods.conversions import LeasedMessage
from tests.kit.waiting import until, until_answered

from .cluster_audit import Acked, Got, Log, Outcome, Sent, Throttle

VISIBILITY_MS: Final = 4_000
THROTTLE: Final = "api"
LIMIT: Final = Throttle(rate=100, burst=20)
BATCH, THROTTLED_BATCH = 10, 3
"""How many messages are sent at once; what two throttled queues get in a second is more than the throttle lets go."""
PAUSE_S: Final = 0.05
"""Paces the clients, so that a cluster on one machine is busy and not saturated."""
FORGOTTEN: Final = 0.05
"""The fraction of messages that are not acked in time, so that they are redelivered and the ack is stale."""
_REFUSED: Final = (LeaseMismatch, MessageNotFound, QueueMoving, QueueElsewhere)
"""Errors that guarantee that nothing was done."""
_WAIT_MS: Final = 500
_END_OF_NAME: Final = b"\n"


class Load:
    """Producers and consumers on some queues; those of ``throttled`` share a throttle.

    Attributes:
        log: what they saw.
        woken: what nodes answered to what they found when they were woken, by code.

    Each queue has a producer, a consumer that leases and one that streams; one more acks what it should have forgotten.
    """

    def __init__(
        self,
        addresses: str,
        *,
        queues: Sequence[str],
        throttled: Sequence[str] = (),
        padding_bytes: int = 0,
        follows: bool = True,
        seed: int = 1,
    ) -> None:
        """Prepare.

        Args:
            addresses: those of all nodes.
            queues: what to make and use.
            throttled: queues that are made, too, and share a throttle.
            padding_bytes: what each payload has beside its name.
            follows: whether clients go to owners themselves; or else each asks one node over plain HTTP.
            seed: of what is left to chance.
        """
        self.log = Log()
        self.queues = (*queues, *throttled)
        self._addresses = addresses
        self._throttled = frozenset(throttled)
        self._follows = follows
        self._padding = _END_OF_NAME + bytes(padding_bytes)
        self._chance = random.Random(seed)
        self._names = count()
        self._late: list[tuple[float, Got]] = []
        self._is_producing = True
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: list[AsyncClient] = []
        self._assailant: AsyncClient | None = None
        self.woken: Counter[str] = Counter()

    # ------------------------------------------------------------------------------------------------ beginning, ending

    async def start(self) -> None:
        """Create the queues, and start."""
        operator = await self._client()
        await operator.set_config(f"throttle:{THROTTLE}:rate", str(LIMIT.rate))
        await operator.set_config(f"throttle:{THROTTLE}:burst", str(LIMIT.burst))
        for queue in self.queues:
            with suppress(QueueExists):  # a repeated request may find what the first had made
                await operator.create_queue(queue, {"max_attempts": 0, "backoff_ms": 0})
        for queue in self.queues:
            self._begin(self._produce(await self._client(), queue))
            self._begin(self._lease(await self._client(), queue))
            self._begin(self._stream(await self._client(), queue))
        self._begin(self._ack_late(await self._client()))

    async def drain(self) -> None:
        """Stop producing, and wait until the queues are empty."""
        self._is_producing = False
        operator = await self._client()
        for queue in self.queues:
            await until_answered(partial(self._is_empty, operator, queue), f"{queue} is empty")

    async def stop(self) -> None:
        """Stop, whatever is left in the queues."""
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()
        faults = [fault for fault in ended if isinstance(fault, Exception)]
        if faults:
            raise ExceptionGroup("Clients broke down", faults)

    async def until(self, is_so: Callable[[], bool], *, what: str) -> None:
        """Wait for a condition for a limited time; raise at once if a client fails."""

        def is_so_or_broken() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return is_so()

        await until(is_so_or_broken, what)

    async def goes_on(self, *queues: str, acks: int = 30) -> None:
        """Wait until a number of messages enqueued from now on is acked in each queue, by default all queues."""
        begun = _now()

        def is_so() -> bool:
            new = {(sent.queue, sent.id) for sent in self.log.sent if sent.asked > begun}
            done = [ack.queue for ack in self.log.acked if ack.outcome == "done" and (ack.queue, ack.id) in new]
            return all(done.count(queue) >= acks for queue in queues or self.queues)

        await self.until(is_so, what=f"{queues or self.queues} go on")

    async def move(self, queue: str, node: str) -> None:
        """Move a queue to a node."""
        await self._clients[0].move_queue(queue, node)

    async def split(self, queue: str, partitions: int) -> None:
        """Split a queue into a number of partitions."""
        await self._clients[0].split_queue(queue, partitions)

    async def is_served_by_others(self, queue: str, *, without: str) -> None:
        """Wait until another node than the one at an address owns a queue."""
        others = ",".join(address for address in self._addresses.split(",") if address != without)
        async with AsyncClient(others, timeout=15, retries=Retries(longest_s=0.1)) as client:
            await client.queue(queue)

    @asynccontextmanager
    async def assailing(self, address: str) -> AsyncIterator[Callable[[Sequence[str]], None]]:
        """Return what fills the ears of one node: enqueues, leases and acks that it finds when it is woken.

        What it answers to them is written down as the answers to all others are.
        """
        transport = WebSocketTransport(address, timeout=60, follows=True)
        await transport.connect()
        client = self._assailant = AsyncClient(transport, retries=Retries(patience_s=0))
        asked: list[asyncio.Future[Any]] = []

        def assail(queues: Sequence[str]) -> None:
            for queue in queues:
                held = [got for got in self.log.got[-500:] if got.queue == queue][-20:]
                asked.extend(asyncio.ensure_future(self._ack(client, queue, [got])) for got in held)
                for _ in range(5):
                    asked.append(asyncio.ensure_future(self._send(client, queue)))
                    asked.append(asyncio.ensure_future(self._lease_once(client, queue)))

        try:
            yield assail
            await asyncio.gather(*asked)
        finally:
            for task in asked:
                task.cancel()
            await client.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def _client(self) -> AsyncClient:
        retries = Retries(longest_s=0.5)
        if self._follows:
            client = AsyncClient(self._addresses, timeout=15, retries=retries)
        else:
            addresses = self._addresses.split(",")
            address = addresses[len(self._clients) % len(addresses)]
            client = AsyncClient(HttpTransport(address, timeout=15, retries=retries, poll_ms=200), retries=retries)
        await client.connect()
        self._clients.append(client)
        return client

    async def _is_empty(self, client: AsyncClient, queue: str) -> bool:
        view = await client.queue(queue)
        return view.waiting + view.leased == 0

    # ----------------------------------------------------------------------------------------------------- what they do

    async def _produce(self, client: AsyncClient, queue: str) -> None:
        while self._is_producing:
            await self._send(client, queue)
            await asyncio.sleep(PAUSE_S * self._chance.uniform(0.5, 1.5))

    async def _send(self, client: AsyncClient, queue: str) -> None:
        throttles = (THROTTLE,) if queue in self._throttled else ()
        names = [f"{queue}/{next(self._names)}" for _ in range(THROTTLED_BATCH if throttles else BATCH)]
        messages = [
            NewMessage(payload=name.encode() + self._padding, throttles=throttles, fairness_key=f"tenant{at}")
            for at, name in enumerate(names)
        ]
        asked = _now()
        results: Sequence[str | FairlaneError]
        try:
            results = await client.enqueue_many(queue, messages)
        except FairlaneError as error:
            results = [error] * len(names)
        answered = _now()
        self._note_answers(client, "enqueue", results)
        self.log.sent += [
            Sent(queue, name, result if isinstance(result, str) else None, asked, answered)
            for name, result in zip(names, results, strict=True)
        ]

    async def _lease(self, client: AsyncClient, queue: str) -> None:
        while True:
            leased = await self._lease_once(client, queue)
            due = [message for message, got in leased if not self._is_forgotten(got)]
            if due:
                await self._ack(client, queue, due)

    async def _lease_once(self, client: AsyncClient, queue: str) -> list[tuple[AsyncMessage, Got]]:
        asked = _now()
        try:
            leased = await client.lease(queue, 2 * BATCH, wait_ms=_WAIT_MS, visibility_ms=VISIBILITY_MS)
        except FairlaneError as error:
            self._note_answers(client, "lease", [error])
            await asyncio.sleep(PAUSE_S)
            return []
        self._note_answers(client, "lease", [None])
        return [(message, self._note(message, asked)) for message in leased]

    async def _stream(self, client: AsyncClient, queue: str) -> None:
        async with client.consume(queue, credit=2 * BATCH, visibility_ms=VISIBILITY_MS) as stream:
            async for message in stream:
                if not self._is_forgotten(self._note(message, None)):
                    await self._ack(client, queue, [message])

    async def _ack_late(self, client: AsyncClient) -> None:
        """Ack forgotten messages after their lease has ended; mostly another consumer has them by then."""
        while True:
            await asyncio.sleep(PAUSE_S)
            now = _now()
            due = [got for at, got in self._late if at <= now]
            self._late = [(at, got) for at, got in self._late if at > now]
            for got in due:
                await self._ack(client, got.queue, [got])

    async def _ack(self, client: AsyncClient, queue: str, held: Sequence[LeasedMessage]) -> None:
        asked = _now()
        results: Sequence[FairlaneError | None]
        try:
            results = await client.ack_many(queue, held)
        except FairlaneError as error:
            results = [error] * len(held)
        answered = _now()
        self._note_answers(client, "ack", results)
        self.log.acked += [
            Acked(queue, each.id, each.token, _outcome(result), asked, answered)
            for each, result in zip(held, results, strict=True)
        ]

    def _note_answers(self, client: AsyncClient, verb: str, results: Sequence[object]) -> None:
        if client is self._assailant:
            codes = (result.code if isinstance(result, FairlaneError) else "done" for result in results)
            self.woken.update(f"{verb} after waking: {code}" for code in codes)

    def _note(self, message: AsyncMessage, asked: float | None) -> Got:
        throttle = THROTTLE if message.queue in self._throttled else None
        leased_ms = message.expires_ms - VISIBILITY_MS
        name = message.payload.partition(_END_OF_NAME)[0].decode()
        got = Got(message.queue, name, message.id, message.token, asked, _now(), leased_ms, throttle)
        self.log.got.append(got)
        return got

    def _is_forgotten(self, got: Got) -> bool:
        if not self._is_producing or self._chance.random() >= FORGOTTEN:
            return False
        self._late.append((_now() + VISIBILITY_MS / 1_000 * self._chance.uniform(0.9, 1.5), got))
        return True


def _outcome(error: FairlaneError | None) -> Outcome:
    if error is None:
        return "done"
    return "refused" if isinstance(error, _REFUSED) else "unknown"


def _now() -> float:
    return asyncio.get_running_loop().time()
