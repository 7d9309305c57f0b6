"""Celery, Dramatiq and Huey on Redis, each with a task that does nothing, for the benchmark of tasks.

They are no dependencies of the project: the benchmark runs those that a given Python has installed. Each drains a queue
that was filled before; the rate is that at which its list in Redis gets shorter.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import redis

_POLL_S = 0.02
_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A task queue: the module of its app, how its worker starts, and the list that its tasks wait in."""

    name: str
    package: str
    module: str
    command: tuple[str, ...]
    waiting: str


PEERS = (
    Peer(
        "Celery",
        "celery",
        """
import os
from celery import Celery
app = Celery("peer", broker=os.environ["REDIS"])
app.conf.task_ignore_result = True
@app.task
def charge(order_id, tenant): pass
def fill(count):
    for number in range(count):
        charge.delay(number, "acme")
""",
        ("-m", "celery", "-A", "peer", "worker", "-P", "prefork", "-c", "2", "--loglevel", "error"),
        "celery",
    ),
    Peer(
        "Dramatiq",
        "dramatiq",
        """
import os
import dramatiq
from dramatiq.brokers.redis import RedisBroker
dramatiq.set_broker(RedisBroker(url=os.environ["REDIS"]))
@dramatiq.actor
def charge(order_id, tenant): pass
def fill(count):
    for number in range(count):
        charge.send(number, "acme")
""",
        ("-m", "dramatiq", "peer", "--processes", "2", "--threads", "8"),
        "dramatiq:default",
    ),
    Peer(
        "Huey",
        "huey",
        """
import os
from huey import RedisHuey
huey = RedisHuey("peer", url=os.environ["REDIS"], results=False)
@huey.task()
def charge(order_id, tenant): pass
def fill(count):
    for number in range(count):
        charge(number, "acme")
""",
        ("-m", "huey.bin.huey_consumer", "peer.huey", "-w", "2", "-k", "process", "-q"),
        "huey.redis.peer",
    ),
)


def has(python: str, peer: Peer) -> bool:
    """Return whether a Python has the package of a peer."""
    return subprocess.run([python, "-c", f"import {peer.package}"], capture_output=True, check=False).returncode == 0


def rate(python: str, peer: Peer, port: int, count: int) -> float:
    """Return how many tasks a second the worker of a peer drains, with two processes."""
    store = redis.Redis(port=port)
    store.flushall()
    with TemporaryDirectory() as folder:
        (Path(folder) / "peer.py").write_text(peer.module)
        environment = os.environ | {"REDIS": f"redis://127.0.0.1:{port}/0"}
        fill = [python, "-c", f"import peer; peer.fill({count})"]
        subprocess.run(fill, cwd=folder, env=environment, check=True, capture_output=True)
        worker = subprocess.Popen(
            [python, *peer.command],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return _drained(store, peer.waiting, count)
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


def _drained(store: redis.Redis, waiting: str, count: int) -> float:
    """Wait until a list is empty, and return the rate from its first tenth to its end."""
    begun_s, begun_left = 0.0, 0
    until_s = time.perf_counter() + _PATIENCE_S
    while True:
        left, now_s = int(store.llen(waiting)), time.perf_counter()
        if not begun_s and left <= count * 0.9:
            begun_s, begun_left = now_s, left
        if not left and begun_s:
            return begun_left / (now_s - begun_s)
        if now_s > until_s:
            raise TimeoutError(f"{waiting} has still {left} of {count} tasks.")
        time.sleep(_POLL_S)  # noqa: TID251 - a benchmark of other programs, which tell nothing else
