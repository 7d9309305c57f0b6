"""A worker whose server is killed under load, and comes back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fairlane.client import AsyncClient, Client, NewMessage
from fairlane.errors import FairlaneError
from fairlane.worker import Worker, WorkMessage
from tests.kit.waiting import PATIENCE_S, until_answered
from tests.unit.client.serving import ServerProcess

KILLS = 3
BATCH = 100
BATCHES = 30
VISIBILITY_MS = 3_000


class Load:
    """A producer and a worker, and what each knows."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.accepted: set[str] = set()
        self.handled: Counter[str] = Counter()
        self.progress = asyncio.Event()
        self.app = Worker(url, grace_s=5)
        self.app.handler("jobs", concurrency=16, credit=64, visibility_ms=VISIBILITY_MS)(self.handle)

    async def handle(self, message: WorkMessage) -> None:
        """Handle a message, with a pause so that others are under way at the same time."""
        await asyncio.to_thread(int)
        self.handled[message.id] += 1
        self.progress.set()

    async def produce(self) -> None:
        """Enqueue everything, whatever happens to the server."""
        async with AsyncClient(self.url) as client:
            for _ in range(BATCHES):
                answers = await client.enqueue_many("jobs", [NewMessage(payload=b"x" * 1_000)] * BATCH)
                self.accepted |= {answer for answer in answers if not isinstance(answer, FairlaneError)}

    async def until_handled(self, count: int) -> None:
        """Wait until a number of different messages are handled."""
        while len(self.handled) < count:
            self.progress.clear()
            await self.progress.wait()


async def until_empty(server: ServerProcess) -> None:
    """Wait until the messages whose acks were lost are handled again, and nothing waits or is dead."""
    async with AsyncClient(server.url) as client:

        async def is_empty() -> bool:
            view = await client.queue("jobs")
            assert view.dead == 0
            return (view.waiting, view.leased) == (0, 0)

        await until_answered(is_empty, "the queue is empty")


async def under_load(server: ServerProcess) -> Load:
    """Kill the server again and again while a worker handles what a producer sends."""
    async with AsyncClient(server.url) as client:
        await client.create_queue("jobs", {"max_attempts": 0, "backoff_ms": 0})
    load = Load(server.url)
    async with asyncio.timeout(PATIENCE_S), load.app:
        producing = asyncio.ensure_future(load.produce())
        for kill in range(1, KILLS + 1):
            await load.until_handled(kill * BATCHES * BATCH // (KILLS + 2))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await producing
        await load.until_handled(BATCHES * BATCH)
        await until_empty(server)
    return load


def test_every_message_is_handled_though_the_server_is_killed(tmp_path: Path) -> None:
    """Kill -9 the server under load with the worker running: every message is handled, and the queue is empty."""
    with ServerProcess(tmp_path / "data") as server:
        load = asyncio.run(under_load(server))
    assert len(load.accepted) == BATCHES * BATCH
    assert load.accepted <= set(load.handled)
    assert load.app.counters.handled >= BATCHES * BATCH - load.app.counters.lost


APP = """
import os
from fairlane.worker import Worker

app = Worker()


@app.handler("jobs", concurrency=16, credit=64, visibility_ms=3000)
async def handle(message):
    os.write(1, f"handled {message.id}\\n".encode())
"""


def produce(url: str) -> set[str]:
    """Enqueue everything, whatever happens to the server; return what was accepted."""
    with Client(url) as client:
        batches = [client.enqueue_many("jobs", [NewMessage(payload=b"x" * 1_000)] * BATCH) for _ in range(BATCHES)]
    return {answer for answers in batches for answer in answers if not isinstance(answer, FairlaneError)}


def handled_by(worker: subprocess.Popen[str], server: ServerProcess) -> set[str]:
    """Read what a worker handles until it is everything, and kill the server now and then meanwhile."""
    handled: set[str] = set()
    kills = 0
    assert worker.stdout is not None
    for line in worker.stdout:
        if line.startswith("handled "):
            handled.add(line.split()[1])
        if len(handled) == BATCHES * BATCH:
            return handled
        if kills < KILLS and len(handled) >= (kills + 1) * BATCHES * BATCH // (KILLS + 2):
            kills += 1
            server.kill()
            server.start()
    raise AssertionError(f"the worker ended after {len(handled)} messages")


def test_the_command_outlives_its_server(tmp_path: Path) -> None:
    """``fairlane worker`` continues when its server is killed and restarted; no accepted message is lost."""
    (tmp_path / "tasks.py").write_text(APP)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    with ServerProcess(tmp_path / "data") as server:
        with Client(server.url) as client:
            client.create_queue("jobs", {"max_attempts": 0, "backoff_ms": 0})
        command = [sys.executable, "-m", "fairlane", "--server", server.url, "worker", "tasks:app"]
        with (
            subprocess.Popen(
                command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            ) as worker,
            ThreadPoolExecutor(1) as pool,
        ):
            producing = pool.submit(produce, server.url)
            handled = handled_by(worker, server)
            accepted = producing.result(PATIENCE_S)
            with Client(server.url) as client:
                while client.queue("jobs").size:  # what was handled, but whose ack was lost, is handled again
                    pass
            worker.terminate()
            assert worker.wait(PATIENCE_S) == 0
        with Client(server.url) as client:
            view = client.queue("jobs")
    assert (view.waiting, view.leased, view.dead) == (0, 0, 0)
    assert len(accepted) == BATCHES * BATCH
    assert accepted <= handled
