"""A tenant that only wants to work: it enqueues, leases and acknowledges, and notes how long it ever waited.

It runs in a process of its own, so that it measures the server and not the attacker's Python.
"""

from __future__ import annotations

import http.client
import multiprocessing
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

import msgspec

from fairlane.testing.attack.target import Address, Response, pause, request

_PAUSE_S: Final = 0.005
_RETRY_S: Final = 0.05
_TIMEOUT_S: Final = 60.0
_STARTS_S: Final = 30.0
_CALLS: Final[tuple[tuple[str, dict[str, object]], ...]] = (("queue/enqueue", {"messages": [{}]}), ("queue/lease", {}))


@dataclass(frozen=True, slots=True)
class Experience:
    """What the bystander saw since it was last asked.

    Attributes:
        stall_s: the longest time that one call took, with retries after a broken connection.
        calls: the number of calls that were answered.
        failures: the number of calls that were refused or broke off.
    """

    stall_s: float
    calls: int
    failures: int


class Bystander:
    """The bystander's process. Use it as a context manager."""

    def __init__(self, address: Address, queue: str, api_key: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, address, queue, api_key), daemon=True)

    def __enter__(self) -> Bystander:
        self._process.start()
        if not self._pipe.poll(_STARTS_S):
            raise TimeoutError("The bystander did not start; is the server reachable?")
        self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def experience(self) -> Experience:
        """Return what it saw since the last call of this method. A call in flight is counted when it ends."""
        self._pipe.send(None)
        seen: Experience = self._pipe.recv()
        return seen


def _work(pipe: Connection, address: Address, queue: str, api_key: str | None) -> None:
    connection = address.connect(timeout_s=_TIMEOUT_S)
    stall_s, calls, failures = 0.0, 0, 0
    pipe.send(None)
    while True:
        for path, fields in _CALLS:
            begun = time.perf_counter()
            answer, failed = _insist(connection, path, {"queue": queue, **fields}, api_key)
            stall_s = max(stall_s, time.perf_counter() - begun)
            calls += 1
            failures += failed
            if path == "queue/lease":
                _acknowledge(connection, queue, answer, api_key)
        if pipe.poll():
            pipe.recv()
            pipe.send(Experience(stall_s, calls, failures))
            stall_s, calls, failures = 0.0, 0, 0
        pause(_PAUSE_S)


def _insist(
    connection: http.client.HTTPConnection, path: str, body: dict[str, object], api_key: str | None
) -> tuple[Response, int]:
    """Return the answer to a call that is repeated until it succeeds, and how often it failed."""
    failed = 0
    while True:
        with suppress(OSError, http.client.HTTPException):
            answer = request(connection, path, msgspec.json.encode(body), api_key=api_key)
            if answer.is_success:
                return answer, failed
        connection.close()
        failed += 1
        pause(_RETRY_S)


def _acknowledge(connection: http.client.HTTPConnection, queue: str, answer: Response, api_key: str | None) -> None:
    leased = [{"id": each["id"], "token": each["token"]} for each in answer.content["deliveries"]]
    if leased:
        with suppress(OSError, http.client.HTTPException):
            body = msgspec.json.encode({"queue": queue, "receipts": leased})
            request(connection, "queue/ack", body, api_key=api_key)
