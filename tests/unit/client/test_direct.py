"""Threads that write and read a socket themselves: what they share with calls over the event loop, and what differs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from fairlane.client import AsyncClient, Client, NewMessage, Retries
from fairlane.client.transport import blocking
from fairlane.errors import (
    Closed,
    Disconnected,
    InvalidArgument,
    PayloadTooLarge,
    QueueExists,
    QueueNotFound,
    WrongProcess,
)
from tests.kit.waiting import wait_until
from tests.unit.client.serving import ServerProcess

QUICK = Retries(first_s=0.001, longest_s=0.01)


def streams(server: ServerProcess) -> int:
    """Return how many stream connections the server has."""
    with urllib.request.urlopen(server.url.replace("ws", "http", 1) + "/metrics") as answer:
        found = re.search(r"^fairlane_streams (\d+)", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return int(found[1])


@contextmanager
def direct(server: ServerProcess, **options: object) -> Iterator[Client]:
    """Yield a client with a queue, whose calls are direct."""
    with Client(server.url, **options) as client:  # type: ignore[arg-type] # they are options of clients
        client.ensure_queue("jobs")
        for _ in range(4):
            client.queue("jobs")
        yield client


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Start a thread. The list gets what the work returns or raises."""
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(work())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcomes


def test_a_few_calls_need_one_connection_and_many_have_a_second() -> None:
    """A thread connects by itself with its fourth call, and both connections are closed with the client."""
    with ServerProcess() as server:
        with Client(server.url) as client:
            client.create_queue("jobs")
            assert streams(server) == 1
            for _ in range(10):
                client.enqueue("jobs", b"x")
            assert streams(server) == 2
        wait_until(lambda: streams(server) == 0, what="closed")


def test_calls_of_those_that_stay_awake_are_answered_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``FAIRLANE_SPIN=on`` clients of both kinds get their own answers, refusals, and the end of the server."""
    monkeypatch.setenv("FAIRLANE_SPIN", "on")
    with ServerProcess() as server, direct(server, retries=Retries(patience_s=0)) as client:
        ids = [client.enqueue("jobs", b"x") for _ in range(50)]
        with pytest.raises(QueueNotFound):
            client.enqueue("none", b"x")
        assert [client.lease("jobs", wait_ms=50)[0].id for _ in range(50)] == ids
        assert client.lease("jobs", wait_ms=50) == []
        assert len(asyncio.run(_enqueued_on_a_loop(server.url, 50))) == 50
        server.kill()
        with pytest.raises(Disconnected):
            client.enqueue("jobs", b"x")


async def _enqueued_on_a_loop(url: str, count: int) -> set[str]:
    async with AsyncClient(url) as client:
        return {await client.enqueue("jobs", b"x") for _ in range(count)}


def test_the_life_of_messages() -> None:
    """Single and batched enqueues, leases, acks, nacks and refusals answer as they do over the event loop."""
    with ServerProcess() as server, direct(server) as client:
        first = client.enqueue("jobs", b"1", fairness_key="k")
        ids = client.enqueue_many("jobs", [NewMessage(payload=b"2"), NewMessage(payload=b"3")])
        leased = client.lease("jobs", 3, wait_ms=1_000)
        assert [message.id for message in leased] == [first, *ids]
        leased[0].ack()
        leased[1].nack()
        assert client.ack_many("jobs", [leased[2], leased[0]])[0] is None
        with pytest.raises(QueueNotFound):
            client.enqueue("none", b"x")
        with pytest.raises(QueueExists):
            client.create_queue("jobs")
        assert client.queue("jobs").waiting == 1


def test_what_cannot_be_sent_leaves_the_connection_usable() -> None:
    """A request that is too large or cannot be encoded is refused, and the next one uses the same connection."""
    with ServerProcess() as server, direct(server, frame_bytes_max=10_000) as client:
        with pytest.raises(PayloadTooLarge):
            client.enqueue("jobs", bytes(20_000))
        with pytest.raises(InvalidArgument):
            client.enqueue("jobs", b"x", headers={"a": object()})  # type: ignore[dict-item] # what is tried
        client.enqueue("jobs", b"x")
        assert streams(server) == 2


def test_a_restart_between_calls_is_noticed_before_sending() -> None:
    """The first call after a restart succeeds, although it is one that must not be repeated."""
    with ServerProcess() as server, direct(server) as client:
        for _ in range(3):
            server.kill()
            server.start()
            client.create_queue("jobs")
            for _ in range(4):
                client.queue("jobs")


def test_enqueues_through_kills_are_done_once(tmp_path: Path) -> None:
    """A thread enqueues while its server is killed again and again; each message is there exactly once."""
    with ServerProcess(tmp_path) as server, direct(server, retries=QUICK) as client:
        enqueued: list[str] = []
        is_over = threading.Event()

        def produce() -> None:
            while not is_over.is_set():
                enqueued.append(client.enqueue("jobs", b"x"))

        thread, outcomes = in_thread(produce)
        for _ in range(3):
            seen = len(enqueued)
            wait_until(lambda seen=seen: len(enqueued) > seen + 20 or bool(outcomes), what="more")  # type: ignore[misc] # bound now
            server.kill()
            server.start()
        is_over.set()
        thread.join()
        assert outcomes == [None]
        found = [view.id for view in client.peek("jobs", 10_000)]
        assert sorted(found) == sorted(enqueued)


def test_an_interrupted_lease_takes_nothing_along() -> None:
    """A wait that a signal interrupts is withdrawn: the next message goes to the next caller, without a failure."""

    class Interrupted(Exception):
        pass

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with ServerProcess() as server, direct(server) as client:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Interrupted):
                client.lease("jobs", wait_ms=60_000)
            client.enqueue("jobs", b"x")
            (message,) = client.lease("jobs", wait_ms=60_000)
            assert (message.payload, message.attempt) == (b"x", 1)
            wait_until(lambda: streams(server) == 2, what="the abandoned connection is closed")
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_server_that_hangs_is_given_up() -> None:
    """A call that must not be repeated raises Disconnected after its timeout; a lease that was too late goes back."""
    with ServerProcess() as server, direct(server, timeout=0.5, retries=Retries(patience_s=0)) as client:
        assert server.process is not None
        client.enqueue("jobs", b"x")
        server.process.send_signal(signal.SIGSTOP)
        with pytest.raises(Disconnected):
            client.lease("jobs", wait_ms=100)
        server.process.send_signal(signal.SIGCONT)

        def comes_back() -> bool:
            try:
                return bool(client.lease("jobs", wait_ms=1_000))
            except Disconnected:
                return False

        wait_until(comes_back, what="the message is back before its lease ends")


def test_a_waiting_thread_does_not_hold_up_others() -> None:
    """While one thread waits for a message, another enqueues it."""
    with ServerProcess() as server, direct(server) as client:
        thread, outcomes = in_thread(lambda: [held.payload for held in client.lease("jobs", wait_ms=60_000)])
        wait_until(lambda: client.queue("jobs").waiters == 1, what="it waits")
        client.enqueue("jobs", b"x")
        thread.join()
        assert outcomes == [[b"x"]]


def test_closing_ends_a_call_that_waits() -> None:
    """A thread that waits for a message gets Closed when another closes the client."""
    with ServerProcess() as server, direct(server) as client:
        thread, outcomes = in_thread(lambda: client.lease("jobs", wait_ms=60_000))
        wait_until(lambda: client.queue("jobs").waiters == 1, what="it waits")
        client.close()
        thread.join()
        assert [type(outcome) for outcome in outcomes] == [Closed]


def test_an_acknowledgement_is_not_overtaken() -> None:
    """What is asked after ``ack_soon`` sees it done, although the one takes the event loop and the other need not."""
    with ServerProcess() as server, direct(server) as client:
        for _ in range(30):
            client.enqueue("jobs", b"x")
            (message,) = client.lease("jobs")
            client.ack_soon(message)
            assert client.queue("jobs").leased == 0


def test_a_forked_process_is_told() -> None:
    """A child process that uses or closes its parent's client leaves the parent's connections alone."""
    with ServerProcess() as server, direct(server) as client:
        child = os.fork()
        if not child:
            code = 1
            try:
                client.enqueue("jobs", b"child")
            except WrongProcess:
                client.close()
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        client.enqueue("jobs", b"parent")
        assert client.queue("jobs").waiting == 1


# ------------------------------------------------------------------------------------------------------ the socket


@contextmanager
def shaken_hands(*, ping_s: float = 60.0) -> Iterator[tuple[blocking.BlockingSocket, ServerProtocol, socket.socket]]:
    """Yield a socket, and the other side of its connection, which does only what a test lets it do."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}/"
        connect = partial(blocking.BlockingSocket, url, headers={}, subprotocols=["x"], timeout_s=60, ping_s=ping_s)
        thread, outcomes = in_thread(connect)
        accepted, _ = listener.accept()
        with accepted:
            other = ServerProtocol(subprotocols=[Subprotocol("x")])
            while not (events := other.events_received()):
                other.receive_data(accepted.recv(65_536))
            (request,) = events
            assert isinstance(request, Request)
            other.send_response(other.accept(request))
            accepted.sendall(b"".join(other.data_to_send()))
            thread.join()
            (made,) = outcomes
            assert isinstance(made, blocking.BlockingSocket)
            yield made, other, accepted
            made.close()


def test_idle_connections_answer_pings() -> None:
    """Looking after a connection that no thread uses answers a ping, which keeps the server from closing it."""
    with shaken_hands() as (made, other, accepted):
        other.send_ping(b"there?")
        accepted.sendall(b"".join(other.data_to_send()))

        def is_answered() -> bool:
            made.look()
            return _pongs(other, accepted) == [b"there?"]

        wait_until(is_answered, what="answered")


def _pongs(other: ServerProtocol, accepted: socket.socket) -> list[bytes]:
    accepted.settimeout(0.01)
    with suppress(TimeoutError):
        other.receive_data(accepted.recv(65_536))
    return [bytes(event.data) for event in other.events_received() if isinstance(event, Frame)]


def test_messages_in_parts_are_joined() -> None:
    """A message in three frames arrives as one, between two that are whole."""
    with shaken_hands() as (made, other, accepted):
        other.send_binary(b"first")
        other.send_binary(b"sec", fin=False)
        other.send_continuation(b"on", fin=False)
        other.send_continuation(b"d", fin=True)
        other.send_binary(b"third")
        accepted.sendall(b"".join(other.data_to_send()))
        until_s = time.monotonic() + 60
        assert [made.receive(until_s) for _ in range(3)] == [b"first", b"second", b"third"]


def test_a_silent_server_is_given_up_before_the_timeout() -> None:
    """A server that does not answer a ping either counts as lost, long before the call times out."""
    with shaken_hands(ping_s=0.05) as (made, _, _), pytest.raises(TimeoutError):
        made.receive(time.monotonic() + 3_600)


def test_a_close_frame_ends_a_wait() -> None:
    """A server that closes the connection ends a wait with its reason."""
    with shaken_hands() as (made, other, accepted):
        other.send_close(1012, "restart")
        accepted.sendall(b"".join(other.data_to_send()))
        with pytest.raises(ConnectionResetError, match="restart"):
            made.receive(time.monotonic() + 60)


def test_a_refused_handshake_raises() -> None:
    """A server that answers with a status instead of a WebSocket is not connected to."""
    with ServerProcess() as server, pytest.raises(InvalidStatus):
        blocking.BlockingSocket(server.url + "/v1/nothing", headers={}, subprotocols=["x"], timeout_s=60, ping_s=60)
