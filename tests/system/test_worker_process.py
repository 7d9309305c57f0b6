"""The command ``fairlane worker`` as processes of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from fairlane.client import Client, NewMessage
from tests.kit.waiting import PATIENCE_S
from tests.unit.client.serving import ServerProcess

FAIRLANE = [sys.executable, "-W", "error", "-m", "fairlane"]
APP = """
import asyncio, os, threading, time
from fairlane.worker import Worker

app = Worker()


def say(*words):
    os.write(1, f"{' '.join(words)} {os.getpid()}\\n".encode())  # at once, or a line of the log comes between


@app.handler("quick")
async def quick(message):
    say("quick", message.payload.decode())


@app.handler("slow", concurrency=1, credit=4)
async def slow(message):
    say("began", message.payload.decode())
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.5 if message.payload == b"short" else 1000, over.set)
    await over.wait()
    say("ended", message.payload.decode())


@app.handler("stubborn")
def stubborn(message):
    say("began", message.payload.decode())
    threading.Event().wait(1000)


@app.handler("deadly", retries=None)
async def deadly(message):
    say("deadly", str(message.attempt))
    if message.attempt == 1:
        os.kill(os.getpid(), 9)


@app.handler("paced", concurrency=8, credit=int(os.environ.get("CREDIT", "8")))
async def paced(message):
    now_ms = time.time() * 1000
    leased_ms = message.delivery.expires_ms - 60_000
    say(f"paced {now_ms:.0f} {leased_ms}")
"""
QUEUES = ("quick", "slow", "stubborn", "deadly", "paced")


class Shift:
    """A running ``fairlane worker``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def until(self, pattern: str, count: int = 1) -> list[re.Match[str]]:
        """Read what the worker says until lines like that have come."""
        assert self.process.stdout is not None
        found: list[re.Match[str]] = []
        for line in self.process.stdout:
            if (match := re.search(pattern, line)) is not None:
                found.append(match)
                if len(found) == count:
                    return found
        raise AssertionError(f"The worker ended before it said {pattern!r}.")

    def end(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """Yield a server with the queues of the app."""
    with ServerProcess() as server:
        with Client(server.url) as client:
            for queue in QUEUES:
                client.create_queue(queue, {"backoff_ms": 0, "visibility_timeout_ms": 2_000})
        yield server


@pytest.fixture
def start(tmp_path: Path, server: ServerProcess) -> Iterator[Callable[..., Shift]]:
    """Yield what starts a worker with some options."""
    (tmp_path / "tasks.py").write_text(APP)
    started: list[subprocess.Popen[str]] = []

    def start(*options: str, **more: str) -> Shift:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
        process = subprocess.Popen(
            [*FAIRLANE, "--server", server.url, "worker", "tasks:app", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=tmp_path,
            env=environment | more,
        )
        started.append(process)
        return Shift(process)

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_sigterm_finishes_what_runs_and_gives_back_the_rest(server: ServerProcess, start: Callable[..., Shift]) -> None:
    """A handler that is running ends and is acked; what was prefetched goes back unharmed; the exit code is 0."""
    shift = start()
    with Client(server.url) as client:
        for _ in range(3):
            client.enqueue("slow", b"short")
        shift.until("began short")
        assert shift.end() == 0
        view = client.queue("slow")
        assert (view.waiting, view.leased) == (2, 0)
        assert all(message.failures == 0 for message in client.peek("slow"))


def test_what_outlasts_the_grace_is_given_back(server: ServerProcess, start: Callable[..., Shift]) -> None:
    """Neither a task nor a thread that never ends keeps a worker from ending, nor its message from others."""
    shift = start("--grace", "50ms")
    with Client(server.url) as client:
        client.enqueue("slow", b"endless")
        client.enqueue("stubborn", b"endless")
        shift.until("began endless", count=2)
        assert shift.end() == 0
        for queue in ("slow", "stubborn"):
            (message,) = client.peek(queue)
            assert (message.status, message.failures) == ("waiting", 0)


def test_a_worker_runs_the_sources_as_they_are_now(
    server: ServerProcess, start: Callable[..., Shift], tmp_path: Path
) -> None:
    """With --reload a changed handler is used, and a program that can't be imported waits for the next change."""
    shift, program = start("--reload"), tmp_path / "tasks.py"
    with Client(server.url) as client:
        client.enqueue("quick", b"one")
        shift.until("quick one")
        program.write_text(APP.replace('say("quick"', 'say("newer"'))
        shift.until("tasks.py has changed; restarting.")
        shift.until("Worker stopped")
        client.enqueue("quick", b"two")
        shift.until("newer two")
        program.write_text("def broken(:")
        shift.until("SyntaxError")
        shift.until("restarting when a source file changes")
        program.write_text(APP)
        client.enqueue("quick", b"three")
        shift.until("quick three")
    assert shift.end() == 0


def test_processes_share_the_work_and_are_started_again(server: ServerProcess, start: Callable[..., Shift]) -> None:
    """A message that kills its process is handled by another; SIGTERM ends all of them with 0."""
    shift = start("--processes", "2")
    with Client(server.url) as client:
        shift.until("Consuming queue quick", count=2)
        client.enqueue("deadly", b"boom")
        first, second = shift.until(r"deadly (\d) (\d+)", count=2)
        assert (first[1], second[1]) == ("1", "2")
        assert first[2] != second[2]
        shift.until("Consuming queue quick")
        assert shift.end() == 0


def test_a_wrong_key_ends_the_worker(start: Callable[..., Shift], tmp_path: Path) -> None:
    """Who is not let in is not tried again: neither alone nor by a parent of several."""
    with ServerProcess(tmp_path / "locked", "--auth", "true") as locked:
        for options in ((), ("--processes", "2")):
            (tmp_path / "tasks.py").write_text(APP.replace("Worker()", f"Worker({locked.url!r}, api_key='wrong')"))
            shift = start(*options)
            shift.until("unauthenticated|forbidden")
            assert shift.process.wait(PATIENCE_S) == 1


@pytest.mark.parametrize("reference", ["tasks", "nowhere:app", "tasks:say"])
def test_what_is_no_worker_is_wrong_usage(tmp_path: Path, reference: str) -> None:
    """A reference that leads to no worker is a usage error."""
    (tmp_path / "tasks.py").write_text(APP)
    result = subprocess.run(
        [*FAIRLANE, "worker", reference], capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S, check=False
    )
    assert result.returncode == 2
    assert "error[usage]" in result.stderr


def test_a_program_that_fails_shows_its_own_traceback(tmp_path: Path) -> None:
    """An exception of the module is shown from its own code on, without the frames of the command."""
    (tmp_path / "tasks.py").write_text("import nosuchpackage\n")
    result = subprocess.run(
        [*FAIRLANE, "worker", "tasks:app"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "Traceback (most recent call last):",
        f'  File "{tmp_path / "tasks.py"}", line 1, in <module>',
        "    import nosuchpackage",
        "ModuleNotFoundError: No module named 'nosuchpackage'",
    ]


@pytest.mark.parametrize("credit", [8, 100])
def test_handlers_start_no_faster_than_a_throttle_allows(
    server: ServerProcess, start: Callable[..., Shift], credit: int
) -> None:
    """At five a second and a burst of one, no handler starts within 190 ms of the hand-out before it, whatever credit.

    That is the time between two starts, unless the machine was late to start the first.
    """
    with Client(server.url) as client:
        client.set_throttle("slow-api", rate=5, burst=1)
        client.update_queue("paced", {"visibility_timeout_ms": 60_000})
        client.enqueue_many("paced", [NewMessage(payload=b"", throttles=("slow-api",)) for _ in range(8)])
        found = start(CREDIT=str(credit)).until(r"paced (\d+) (\d+)", count=8)
    starts = sorted((int(each[2]), int(each[1])) for each in found)
    assert all(later[1] - earlier[0] >= 190 for earlier, later in pairwise(starts)), starts
