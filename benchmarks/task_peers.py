"""Celery, Dramatiq and Huey on Redis, each with a task that does nothing, for the benchmark of tasks.

They are no dependencies of the project: the benchmark runs those that a given Python has installed. ``drain_rate`` is
the rate at which a worker drains a list in Redis that was filled before, ``loop_rate`` that of a process that sends one
task after the other while a worker runs them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import redis

_POLL_S = 0.02
_PATIENCE_S = 120.0
_FIRST = 10


@dataclass(frozen=True, slots=True)
class Home:
    """Where the app of a peer is, and the environment that names its Redis."""

    folder: str
    environment: Mapping[str, str]


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


def drain_rate(python: str, peer: Peer, port: int, count: int) -> float:
    """Return how many tasks a second the worker of a peer drains, with two processes."""
    store = redis.Redis(port=port)
    store.flushall()
    with _home(peer, port) as home:
        _fill(python, home, count)
        with _worker(python, peer, home):
            return _drained(store, peer.waiting, count)


def loop_rate(python: str, peer: Peer, port: int, count: int) -> float:
    """Return how many tasks a second one process sends in a loop and the worker of a peer takes, with two processes."""
    store = redis.Redis(port=port)
    store.flushall()
    with _home(peer, port) as home, _worker(python, peer, home):
        _fill(python, home, _FIRST)  # until these are gone, the worker starts
        _wait_until_empty(store, peer.waiting)
        begun_s = time.perf_counter()
        spent_s = _fill(python, home, count)
        started_s = time.perf_counter() - begun_s - spent_s
        _wait_until_empty(store, peer.waiting)
        return count / (time.perf_counter() - begun_s - started_s)


@contextmanager
def _home(peer: Peer, port: int) -> Iterator[Home]:
    with TemporaryDirectory() as folder:
        (Path(folder) / "peer.py").write_text(peer.module)
        yield Home(folder, os.environ | {"REDIS": f"redis://127.0.0.1:{port}/0"})


def _fill(python: str, home: Home, count: int) -> float:
    """Send tasks in a process of its own, and return the seconds that the loop took."""
    code = f"import peer, time; t = time.perf_counter(); peer.fill({count}); print(time.perf_counter() - t)"
    done = subprocess.run(
        [python, "-c", code], cwd=home.folder, env=home.environment, check=True, capture_output=True, text=True
    )
    return float(done.stdout)


@contextmanager
def _worker(python: str, peer: Peer, home: Home) -> Iterator[None]:
    worker = subprocess.Popen(
        [python, *peer.command],
        cwd=home.folder,
        env=home.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def _wait_until_empty(store: redis.Redis, waiting: str) -> None:
    until_s = time.perf_counter() + _PATIENCE_S
    while left := int(store.llen(waiting)):
        if time.perf_counter() > until_s:
            raise TimeoutError(f"{waiting} has still {left} tasks.")
        time.sleep(_POLL_S)  # noqa: TID251 - a benchmark of other programs, which tell nothing else


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
