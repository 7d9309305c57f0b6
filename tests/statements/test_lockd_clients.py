"""lockd's queue: the client, the worker and the command line."""

from __future__ import annotations

import asyncio
import io
import os
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from fairlane.assembly import Broker
from fairlane.client import Client
from fairlane.errors import LeaseMismatch
from fairlane.model.message import Receipt
from fairlane.worker import Counters, Restarts, WorkMessage
from tests.kit.waiting import until, wait_until
from tests.unit.cli.shell import Shell
from tests.unit.cli.test_leases import exports
from tests.unit.worker.bench import WorkerBench, on_bench


@contextmanager
def enqueued_later(broker: Broker | Client, queue: str) -> Iterator[None]:
    """Enqueue a message from another thread as soon as a consumer waits at a queue."""

    def enqueue() -> None:
        wait_until(lambda: broker.queue(queue).waiters > 0, what="a consumer waits")
        broker.enqueue(queue, b"x")

    with ThreadPoolExecutor(max_workers=1) as pool:
        enqueuing = pool.submit(enqueue)
        yield
        enqueuing.result()


def test_233_a_client_can_wait_without_end(shell: Shell) -> None:
    """A client may wait for hours, and `dequeue --wait forever` without end."""
    with Client.embedded() as client:
        client.create_queue("q")
        with enqueued_later(client, "q"):
            assert client.lease("q", wait_ms=24 * 3_600_000)[0].payload == b"x"
    with enqueued_later(shell.broker, "jobs"):
        shell.ok("dequeue", "jobs", "--wait", "forever")


def test_275_a_message_is_settled_by_its_methods() -> None:
    """A leased message has `ack` and `nack`."""
    with Client.embedded() as client:
        client.create_queue("q")
        client.enqueue("q", b"x")
        client.lease("q")[0].nack(delay_ms=0)
        client.lease("q")[0].ack()
        assert client.queue("q").leased == 0


def test_276_a_block_that_raises_nacks() -> None:
    """A `with` block that raises nacks its message, with the text of the exception."""
    with Client.embedded() as client:
        client.create_queue("q")
        message_id = client.enqueue("q", b"x")
        with pytest.raises(ValueError, match="broken"), client.lease("q")[0]:
            raise ValueError("broken")
        assert client.get("q", message_id).errors[0].error == "ValueError: broken"


def test_279_a_payload_is_decoded_from_json() -> None:
    """`message.json()` decodes the payload."""
    with Client.embedded() as client:
        client.create_queue("q")
        client.enqueue("q", b'{"a": [1, 2]}')
        assert client.lease("q")[0].json() == {"a": [1, 2]}


def test_277_the_delay_of_the_automatic_nack() -> None:
    """`message.exit_delay_ms` is the delay of the nack when a `with` block is left; lockd calls it `OnCloseDelay`."""
    with Client.embedded() as client:
        client.create_queue("q")
        client.enqueue("q", b"x")
        with client.lease("q")[0] as leased:
            leased.exit_delay_ms = 3_600_000
        assert client.lease("q") == []
        assert client.peek("q")[0].status == "delayed"


def test_278_a_payload_is_a_reader_and_a_file(tmp_path: Path) -> None:
    """`message.reader()` is a binary file to read from, and `message.write_to(path)` writes the payload to a file."""
    payload = bytes(range(250)) * 80_000
    with Client.embedded() as client:
        client.create_queue("q")
        client.enqueue_stream("q", io.BytesIO(payload))
        (message,) = client.lease("q")
        with message.reader() as reader:
            assert (reader.read(3), reader.size) == (b"\0\1\2", len(payload))
        message.write_to(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == payload


def test_280_a_message_has_its_state() -> None:
    """A leased message has its state and etag, and `set_state`."""
    with Client.embedded() as client:
        client.create_queue("q")
        client.enqueue("q", b"x")
        leased = client.lease("q", with_state=True)[0]
        etag = leased.set_state(b"half done")
        assert (leased.state, leased.state_etag) == (b"half done", etag)


def test_281_settling_needs_no_message() -> None:
    """Id and token are enough to ack, nack or extend."""
    with Client.embedded() as client:
        client.create_queue("q")
        client.enqueue("q", b"x")
        leased = client.lease("q")[0]
        receipt = Receipt(leased.id, leased.token)
        assert isinstance(client.extend_many("q", [receipt])[0], int)
        assert client.nack_many("q", [receipt], delay_ms=0) == ["waiting"]
        again = client.lease("q")[0]
        assert client.ack_many("q", [Receipt(again.id, again.token)]) == [None]


def test_282_a_runner_for_each_queue() -> None:
    """A worker runs a handler for each queue, with its own concurrency."""

    async def test(bench: WorkerBench) -> None:
        await bench.client.create_queue("mail")
        running: Counter[str] = Counter()
        most: Counter[str] = Counter()
        together = asyncio.Barrier(3)

        @contextmanager
        def counted(queue: str) -> Iterator[None]:
            running[queue] += 1
            most[queue] = max(most[queue], running[queue])
            yield
            running[queue] -= 1

        @bench.app.handler("jobs", concurrency=3)
        async def work(_message: WorkMessage) -> None:
            with counted("jobs"):
                await together.wait()  # passed by three handlers at a time

        @bench.app.handler("mail", concurrency=1)
        async def send(_message: WorkMessage) -> None:
            with counted("mail"):
                await asyncio.sleep(0)

        async with bench.app:
            await bench.enqueue(*[b"x"] * 6)
            await bench.enqueue(*[b"x"] * 4, queue="mail")
            await until(lambda: bench.app.counters.handled == 10, "all are handled")
        assert most == {"jobs": 3, "mail": 1}

    on_bench(test)


def test_283_a_worker_names_its_leases() -> None:
    """The leases of a worker have an owner: its host, its process and its handler."""

    async def test(bench: WorkerBench) -> None:
        owners: list[str | None] = []

        @bench.app.handler("jobs")
        async def handle(_message: WorkMessage) -> None:
            owners.append((await bench.client.peek("jobs"))[0].owner)

        async with bench.app:
            await bench.enqueue(b"1")
            await bench.settled("ack")
        host, process, handler = (owners[0] or "").split(":")
        assert (host, process) == (socket.gethostname(), str(os.getpid()))
        assert handler.startswith("handle")

    on_bench(test)


def test_284_consumers_restart_with_a_backoff() -> None:
    """A consumer that fails is started again, at once at first and then ever more slowly."""

    async def test(bench: WorkerBench) -> None:
        bench.tap.refusals["open"] = [LeaseMismatch("planted"), LeaseMismatch("planted")]

        @bench.app.handler("jobs")
        async def handle(_message: WorkMessage) -> None:
            return None

        async with bench.app:
            await bench.enqueue(b"1")
            await bench.settled("ack")
        assert [verb for verb, _ in bench.tap.calls].count("open") == 3

    on_bench(test)
    assert list(islice(Restarts(jitter=0).waits_s(), 7)) == [0, 0.25, 0.5, 1, 2, 2, 2]


def test_151_an_expired_message_never_starts() -> None:
    """A worker never starts a handler after the deadline of its message, also if it waits for a handler until then."""

    async def test(bench: WorkerBench) -> None:
        started: list[bytes] = []
        began = asyncio.Event()

        @bench.app.handler("jobs", concurrency=1, credit=4)
        async def handle(message: WorkMessage) -> None:
            started.append(message.payload)
            began.set()
            while (await bench.client.queue("jobs")).size > len(message.payload):
                pass

        async with bench.app:
            await bench.enqueue(b"first")
            await began.wait()
            await bench.client.enqueue("jobs", b"second", deadline_ms=50)
            await bench.settled("ack")
        assert started == [b"first"]

    on_bench(test)


def test_285_an_exception_of_a_handler_is_a_failure() -> None:
    """An exception in a handler nacks its message with the text of the exception."""

    async def test(bench: WorkerBench) -> None:
        errors: list[str] = []

        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> None:
            errors.extend(failed.error for failed in message.errors)
            if message.attempt == 1:
                raise RuntimeError("panic")

        async with bench.app:
            await bench.enqueue(b"1")
            await bench.settled("ack")
        assert "RuntimeError: panic" in errors[0]

    on_bench(test)


def test_286_an_exception_at_the_start_ends_the_worker() -> None:
    """An exception in `on_start` ends the worker with that exception, before it takes a message."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs")
        async def handle(_message: WorkMessage) -> None:
            return None

        @bench.app.on_start
        async def fail() -> None:
            raise RuntimeError("no database")

        with pytest.raises(RuntimeError, match="no database"):
            async with bench.app:
                raise AssertionError("never reached")

    on_bench(test)


def test_287_leases_are_extended() -> None:
    """A worker extends the leases of its running handlers, so that a long handler runs once."""

    async def test(bench: WorkerBench) -> None:
        attempts: list[int] = []

        @bench.app.handler("jobs", visibility_ms=200)
        async def handle(message: WorkMessage) -> None:
            attempts.append(message.attempt)
            await bench.settled("extend", 3)

        async with bench.app:
            await bench.enqueue(b"1")
            await bench.settled("ack")
        assert attempts == [1]
        assert bench.app.counters == Counters(handled=1)

    on_bench(test)


def test_288_dequeue_can_block(shell: Shell) -> None:
    """`dequeue` answers at once by default, because scripts that wait for ever surprise; `--block` waits."""
    assert shell.run("dequeue", "jobs").code == 4
    with enqueued_later(shell.broker, "jobs"):
        shell.ok("dequeue", "jobs", "--block")


def test_289_dequeue_exports_variables(shell: Shell) -> None:
    """`eval "$(fairlane dequeue orders)"` sets variables that name the message."""
    message_id = shell.broker.enqueue("jobs", b"x")
    assert exports(shell.ok("dequeue", "jobs"))["FAIRLANE_QUEUE_MESSAGE_ID"] == message_id


def test_290_settling_reads_the_variables(shell: Shell) -> None:
    """`ack`, `nack` and `extend` take the message from the variables."""
    for command in ("ack", "nack"):
        message_id = shell.broker.enqueue("jobs", b"x")
        variables = exports(shell.ok("dequeue", "jobs"))
        shell.ok("extend", env=variables)
        assert shell.broker.queue("jobs").leased == 1
        shell.ok(command, env=variables)
        assert shell.broker.queue("jobs").leased == 0
    assert shell.broker.get("jobs.dlq", message_id).errors[0].attempt == 1  # the queue gives one attempt


def test_291_the_payload_is_a_temporary_file(shell: Shell) -> None:
    """The payload is written to a private temporary file, which `ack` removes."""
    shell.broker.enqueue("jobs", b"x")
    variables = exports(shell.ok("dequeue", "jobs"))
    path = Path(variables["FAIRLANE_QUEUE_PAYLOAD_PATH"])
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"x", 0o600)
    shell.ok("ack", env=variables)
    assert not path.exists()


def test_292_payload_out(shell: Shell, tmp_path: Path) -> None:
    """`--payload-out` names the file."""
    shell.broker.enqueue("jobs", b"x")
    shell.ok("dequeue", "jobs", "--payload-out", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == b"x"


def test_293_payloads_are_streamed_on_both_sides(shell: Shell, tmp_path: Path) -> None:
    """`enqueue --file` and `dequeue --payload-out` move files of any size piece by piece."""
    payload = bytes(range(250)) * 80_000
    (tmp_path / "in").write_bytes(payload)
    shell.ok("enqueue", "jobs", "--file", str(tmp_path / "in"))
    (view,) = shell.broker.peek("jobs", with_body=True)
    assert (view.size, view.payload) == (len(payload), None)
    shell.ok("dequeue", "jobs", "--payload-out", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == payload


def test_294_visibility_and_owner(shell: Shell) -> None:
    """`--visibility` and `--owner` set the lease's timeout and owner."""
    shell.broker.enqueue("jobs", b"x")
    shell.ok("dequeue", "jobs", "--visibility", "1h", "--owner", "me")
    (view,) = shell.broker.peek("jobs")
    assert view.owner == "me"
    assert (view.expires_ms or 0) - view.enqueued_ms >= 3_600_000


def test_295_block_and_stateful(shell: Shell) -> None:
    """`--block` and `--stateful` are accepted for `--wait forever` and `--with-state`."""
    shell.broker.enqueue("jobs", b"x")
    held = shell.broker.lease("jobs")[0]
    shell.broker.set_state(held, b"half done", etag=None)
    shell.broker.nack(held, intent="defer", delay_ms=0)
    variables = exports(shell.ok("dequeue", "jobs", "--block", "--stateful"))
    assert Path(variables["FAIRLANE_QUEUE_STATE_PATH"]).read_bytes() == b"half done"


def test_296_conflicts_are_decided_by_one_writer() -> None:
    """A lease meets no conflict that would have to be retried: of ten at once, each gets a message of its own."""

    async def test(bench: WorkerBench) -> None:
        await bench.enqueue(*(b"%d" % number for number in range(10)))
        got = await asyncio.gather(*(bench.client.lease("jobs") for _ in range(10)))
        assert len({messages[0].id for messages in got}) == 10

    on_bench(test)
