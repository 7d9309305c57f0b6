"""What is done to a cluster under load, and what its clients saw: ``python -m tests.system.cluster_chaos WHAT TIMES``.

``WHAT`` is ``kill`` (the owner of a queue, without a word), ``stop`` (it, until another has taken over, and wake it
then), ``hang`` (likewise, but only its event loop), ``large`` (the same with commits of a megabyte), ``move`` (a queue,
by hand, to all nodes in turn), ``roll`` (restart all nodes in turn), ``http`` (all of that to clients that ask one node
each over plain HTTP), ``split`` (queues into more and fewer partitions, and kill owners of these), ``split-http``
(likewise, over plain HTTP), ``postgres`` (kill the server all nodes share), ``cut`` (the way from one node to it),
``skew`` (move queues and kill owners where two clocks are wrong by half a minute), ``jump`` (set the clock of an owner
an hour forward or back, and right again), ``s3`` or ``s3-stop`` (kill or stop owners of two nodes over S3).
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from fairlane.model.partitions import queue_of
from tests.kit.servers.nodes import Cluster, Node
from tests.kit.servers.stores import PostgresServer, S3Server
from tests.kit.waiting import wait_until

from .cluster_audit import Findings, audit
from .cluster_cut import Cut
from .cluster_load import LIMIT, THROTTLE, Load
from .hanging_server import HANG, WAKE
from .wrong_clock import BACK, FORWARD

QUEUES: Final = ("a", "b", "c")
THROTTLED: Final = ("slow1", "slow2")
SKEW_MS: Final = 30_000
PARTITIONS_MOST: Final = 4
LEASE: Final = ("--heartbeat-timeout-ms", "1500")
HANGING: Final = Path(__file__).with_name("hanging_server.py")
SKEWED: Final = Path(__file__).with_name("skewed_server.py")
LARGE_BYTES: Final = 100_000
UNFENCED: Final = Path(__file__).with_name("unfenced_server.py")
_JUMPED: Final = "The wall clock jumped"


class Chaos:
    """A cluster under load."""

    def __init__(self, cluster: Cluster, load: Load, *, seed: int) -> None:
        self.cluster = cluster
        self.load = load
        self._chance = random.Random(seed)
        self.takeovers_s: list[float] = []

    async def kill_owner(self) -> None:
        """Kill the owner of a queue, wait until others have taken over all its groups, and restart it."""
        queue = self._chance.choice(self.load.queues)
        victim = await asyncio.to_thread(self.cluster.owner, queue)
        begun = asyncio.get_running_loop().time()
        victim.kill()
        await self.load.goes_on(queue, acks=1)
        self.takeovers_s.append(asyncio.get_running_loop().time() - begun)
        await self.load.goes_on()
        await asyncio.to_thread(self.cluster.start, [victim])
        await self.load.goes_on()

    async def stop_owner(self) -> None:
        """Suspend the owner of a queue until another node owns it, send it requests meanwhile, and resume it."""
        await self._replace_owner(signal.SIGSTOP, signal.SIGCONT)

    async def hang_owner(self) -> None:
        """Block the event loop of a queue's owner, not its threads, until another node owns the queue."""
        await self._replace_owner(HANG, WAKE)

    async def _replace_owner(self, silence: int, wake: int) -> None:
        queue = self._chance.choice(self.load.queues)
        victim = await asyncio.to_thread(self.cluster.owner, queue)
        mine = [each for each, name in (await asyncio.to_thread(self.cluster.owners)).items() if name == victim.name]
        async with self.load.assailing(victim.url) as assail:
            victim.silence(silence)
            try:
                assail([each for each in mine if each in self.load.queues])
                await asyncio.to_thread(self.wait_for_another, queue, victim)
                await self.load.is_served_by_others(queue, without=victim.url)
                await asyncio.sleep(self._chance.uniform(0, 0.3))
            finally:
                victim.wake(wake)
        await self.load.goes_on()

    async def move_around(self) -> None:
        """Move a queue from node to node while it is in use."""
        queue = self._chance.choice(self.load.queues)
        for node in self._chance.sample(self.cluster.nodes, len(self.cluster.nodes)):
            await self.load.move(queue, node.name)
            await asyncio.to_thread(self.cluster.wait_for, queue, node)
            await self.load.goes_on(queue)

    async def split_and_kill(self) -> None:
        """Change the number of partitions of a queue while it is in use, and kill the owner of one of them."""
        queue = self._chance.choice(self.load.queues)
        await self.load.split(queue, self._chance.randint(1, PARTITIONS_MOST))
        await self.load.goes_on(queue)
        names = [name for name in await asyncio.to_thread(self.cluster.owners) if queue_of(name) == queue]
        victim = await asyncio.to_thread(self.cluster.owner, self._chance.choice(sorted(names)))
        victim.kill()
        await asyncio.to_thread(self.cluster.start, [victim])
        await self.load.goes_on()

    async def kill_move_and_roll(self) -> None:
        """Do only what clients of a single node survive: their node must come back."""
        await self.move_around()
        victim = await asyncio.to_thread(self.cluster.owner, self._chance.choice(self.load.queues))
        victim.kill()
        await asyncio.to_thread(self.cluster.start, [victim])
        await self.load.goes_on()
        await self.restart_all()

    async def restart_all(self) -> None:
        """Shut one node after the other down cleanly, as for an upgrade, and restart it."""
        for node in self.cluster.nodes:
            node.signal(signal.SIGTERM)
            assert await asyncio.to_thread(node.wait) == 0, node.log[-2000:]
            await asyncio.to_thread(self.cluster.start, [node])
            await self.load.goes_on()

    async def mislead(self) -> None:
        """Move a queue to nodes with different clocks, and kill one owner."""
        await self.move_around()
        await self.kill_owner()

    async def jump_clock(self) -> None:
        """Set the clock of a queue's owner an hour forward or back, and right again, while it is in use."""
        victim = await asyncio.to_thread(self.cluster.owner, self._chance.choice(self.load.queues))
        for number in self._chance.sample((FORWARD, BACK), 2):
            jumps = victim.log.count(_JUMPED)
            victim.signal(number)
            await self.load.goes_on()
            await asyncio.to_thread(wait_until, lambda: victim.log.count(_JUMPED) > jumps, what="it is noticed")  # noqa: B023

    def wait_for_another(self, queue: str, victim: Node) -> None:
        """Wait until a queue has a new owner."""

        def is_so() -> bool:
            return self.cluster.owners().get(queue) not in (None, victim.name)

        wait_until(is_so, what=f"{queue} gets another owner than {victim.name}")


async def kill_postgres(chaos: Chaos, server: PostgresServer) -> None:
    """Kill PostgreSQL under all nodes, and restart it."""
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    await chaos.load.goes_on()


async def cut_off(chaos: Chaos, cut: Cut, node: Node) -> None:
    """Cut a node off from PostgreSQL until others have taken over its groups, and reconnect it."""
    await asyncio.to_thread(wait_until, lambda: node.name in chaos.cluster.owners().values(), what="it owns a queue")
    mine = [queue for queue, name in (await asyncio.to_thread(chaos.cluster.owners)).items() if name == node.name]
    cut.cut()
    for queue in mine:
        await asyncio.to_thread(chaos.wait_for_another, queue, node)
    await chaos.load.goes_on()
    cut.heal()
    await asyncio.to_thread(wait_until, lambda: chaos.cluster.answers(node), what=f"{node.name} answers")
    await chaos.load.goes_on()


@asynccontextmanager
async def under_load(
    cluster: Cluster,
    *,
    seed: int,
    is_throttled: bool = True,
    is_drained: bool = True,
    padding_bytes: int = 0,
    follows: bool = True,
) -> AsyncIterator[Chaos]:
    """Put load on a cluster while the context lasts, and then drain the queues."""
    throttled = THROTTLED if is_throttled else ()
    load = Load(
        cluster.addresses,
        queues=QUEUES,
        throttled=throttled,
        padding_bytes=padding_bytes,
        follows=follows,
        seed=seed,
    )
    try:
        await load.start()
        await load.goes_on()
        yield Chaos(cluster, load, seed=seed)
        if is_drained:
            await load.drain()
    finally:
        await load.stop()


def run(
    cluster: Cluster,
    what: Callable[[Chaos], Awaitable[None]],
    *,
    times: int,
    seed: int = 1,
    is_throttled: bool = True,
    is_drained: bool = True,
    padding_bytes: int = 0,
    follows: bool = True,
    on_time: Callable[[int, float, Chaos], None] = lambda _number, _seconds, _chaos: None,
) -> Findings:
    """Repeat an action on a cluster under load, and audit what the clients saw."""

    async def main() -> Findings:
        async with under_load(
            cluster,
            seed=seed,
            is_throttled=is_throttled,
            is_drained=is_drained,
            padding_bytes=padding_bytes,
            follows=follows,
        ) as chaos:
            for number in range(1, times + 1):
                begun = time.monotonic()
                await what(chaos)
                on_time(number, time.monotonic() - begun, chaos)
        found = audit(chaos.load.log, throttles={THROTTLE: LIMIT} if is_throttled else None, is_drained=is_drained)
        found.counts["moves"] = sum(group["moves"] for group in cluster.view()["groups"])
        found.counts["takeovers"] = sum(node.log.count("taken over from dead node") for node in cluster.nodes)
        found.counts.update(chaos.load.woken)
        return found

    with cluster:
        return asyncio.run(main())


def chaos_of(what: str, folder: Path, stack: ExitStack, *, times: int) -> Findings:
    """Run the actions of a command line, on servers of its own."""
    if what in ("s3", "s3-stop"):
        s3 = stack.enter_context(S3Server())
        s3.make_bucket("chaos")
        cluster = cluster_of(2, s3.url("chaos", "cluster") + "&window_ms=5", folder)
        step = Chaos.kill_owner if what == "s3" else Chaos.stop_owner
        return run(cluster, step, times=times, is_throttled=False, on_time=_tell)
    server = stack.enter_context(PostgresServer(fsync=True))
    if what == "postgres":
        return run(
            cluster_of(3, server.url, folder), lambda chaos: kill_postgres(chaos, server), times=times, on_time=_tell
        )
    if what == "cut":
        cut = stack.enter_context(Cut(server))
        cluster = cluster_cut_at(server, cut, folder)
        return run(cluster, lambda chaos: cut_off(chaos, cut, cluster.nodes[-1]), times=times, on_time=_tell)
    if what == "skew":
        return run(skewed(server, folder), Chaos.mislead, times=times, is_throttled=False, on_time=_tell)
    steps = {
        "kill": Chaos.kill_owner,
        "stop": Chaos.stop_owner,
        "move": Chaos.move_around,
        "roll": Chaos.restart_all,
        "split": Chaos.split_and_kill,
    }
    if what == "hang":
        return run(hanging(server, folder), Chaos.hang_owner, times=times, on_time=_tell)
    if what == "jump":
        return run(jumping(server, folder), Chaos.jump_clock, times=times, on_time=_tell)
    if what == "large":
        cluster = cluster_of(3, server.url, folder)
        return run(cluster, Chaos.stop_owner, times=times, padding_bytes=LARGE_BYTES, on_time=_tell)
    if what in ("http", "split-http"):
        cluster = cluster_of(3, server.url, folder)
        step = Chaos.kill_move_and_roll if what == "http" else Chaos.split_and_kill
        return run(cluster, step, times=times, follows=False, on_time=_tell)
    step = steps[what]
    return run(cluster_of(3, server.url, folder), step, times=times, on_time=_tell)


def cluster_of(count: int, store: str, folder: Path) -> Cluster:
    """Return nodes with a short heartbeat timeout."""
    return Cluster.of(count, store, folder, flags=LEASE)


def cluster_cut_at(server: PostgresServer, cut: Cut, folder: Path) -> Cluster:
    """Return a cluster whose last node can be cut off."""
    cluster = cluster_of(2, server.url, folder)
    cluster.nodes.append(Node("n3", cut.url, folder, flags=LEASE))
    return cluster


def skewed(server: PostgresServer, folder: Path) -> Cluster:
    """Return a cluster in which one node's clock is ahead and another's is behind."""
    cluster = cluster_of(1, server.url, folder)
    for name, skew_ms in (("n2", SKEW_MS), ("n3", -SKEW_MS)):
        cluster.nodes.append(Node(name, server.url, folder, flags=LEASE, program=(str(SKEWED), str(skew_ms))))
    return cluster


def jumping(server: PostgresServer, folder: Path) -> Cluster:
    """Return a cluster whose clocks are right, and can be set."""
    store = f"{server.url}&namespace={folder.name}"
    names = ("n1", "n2", "n3")
    return Cluster([Node(name, store, folder, flags=LEASE, program=(str(SKEWED), "0")) for name in names])


def hanging(server: PostgresServer, folder: Path) -> Cluster:
    """Return a cluster whose event loops can be blocked."""
    store = f"{server.url}&namespace={folder.name}"
    return Cluster([Node(name, store, folder, flags=LEASE, program=(str(HANGING),)) for name in ("n1", "n2", "n3")])


def unfenced(server: PostgresServer, folder: Path) -> Cluster:
    """Return a cluster without fencing: its nodes keep writing to groups they once owned."""
    nodes = [Node(name, server.url, folder, flags=LEASE, program=(str(UNFENCED),)) for name in ("n1", "n2", "n3")]
    return Cluster(nodes)


def _tell(number: int, seconds: float, chaos: Chaos) -> None:
    log = chaos.load.log
    done = sum(ack.outcome == "done" for ack in log.acked)
    sys.stdout.write(
        f"{number:4} {seconds:5.1f} s  enqueued {len(log.sent):7,}  delivered {len(log.got):7,}  acked {done:7,}\n"
    )
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Run the command line, and print the result."""
    what, times = arguments[0], int(arguments[1])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-chaos-")))
        found = chaos_of(what, folder, stack, times=times)
    sys.stdout.write("\n".join(f"{count:8,} {kind}" for kind, count in found.counts.most_common()) + "\n")
    sys.stdout.write("\n".join([f"{len(found.faults)} faults", *found.faults[:20]]) + "\n")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
