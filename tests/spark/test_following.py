"""How the journal source finds the node of a cluster whose journal it reads, and finds it again; no Spark runs here."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from fairlane.client import Retries
from fairlane.errors import Disconnected, InvalidArgument, QueueMoving, QueueNotFound
from fairlane.journal.selection import Selection
from fairlane.spark.pipeline import LiveJournal
from fairlane.spark.pipeline.journals import Covered, accepted
from fairlane.spark.source.data_source import FairlaneDataSource
from fairlane.spark.source.journal_server import ServerJournal
from fairlane.spark.source.options import journal_options
from fairlane.spark.source.ranges import ReadRange
from fairlane.spark.source.server_address import Patience, ServerAddress
from tests.kit.waiting import until
from tests.unit.client.nodes import nodes
from tests.unit.cluster.in_process import Cluster, Member, cluster_of
from tests.unit.cluster.test_serving import HELLO, made
from tests.unit.server.house import run

QUICK = Retries(patience_s=15.0, first_s=0.001, longest_s=0.01)
NEVER = Retries(patience_s=1e9)
SEQUENCES = Selection(columns=("sequence",))

T = TypeVar("T")


def journal_at(*members: Member, queue: str | None = "orders", retries: Retries = QUICK) -> ServerJournal:
    """Return the journal of a queue's group, as one who knows some nodes reads it."""
    place = ServerAddress(server=",".join(member.address for member in members))
    return ServerJournal(place, on_trimmed="fail", queue=queue, retries=retries)


def owner_in(cluster: Cluster) -> Member:
    """Return the node that serves the queue."""
    return next(member for member in cluster.members.values() if member.groups.served_as("orders") is not None)


def others_in(cluster: Cluster) -> list[Member]:
    """Return the nodes that do not."""
    return [member for member in cluster.members.values() if member.groups.served_as("orders") is None]


async def move(to: Member, *, asked: Member) -> None:
    """Move the queue, and wait until it is served there."""
    await asked.done("cluster/move", {"queue": "orders", "node": to.name})
    await until(lambda: to.groups.served_as("orders") is not None, "it is served there")


async def in_thread(call: Callable[[], T]) -> T:
    """Return what a call returns that waits for the nodes, which run here."""
    return await asyncio.to_thread(call)


async def read(journal: ServerJournal, part: ReadRange) -> list[int]:
    """Return the sequences of a part."""

    def all_of_it() -> list[int]:
        return [number for batch in journal.read(part, SEQUENCES) for number in batch.column("sequence").to_pylist()]

    return await in_thread(all_of_it)


async def fill(cluster: Cluster, count: int) -> int:
    """Make the queue and fill it, and return the journal's last sequence."""
    await made(cluster, "orders")
    return await more(cluster, count)


async def more(cluster: Cluster, count: int) -> int:
    """Enqueue more, and return the journal's last sequence."""
    member = cluster["a"]
    await member.done("queue/enqueue", {"queue": "orders", "messages": [HELLO] * count})
    found: dict[str, Any] = await member.done("journal/read", {"queue": "orders", "count": 10_000})
    return int(found["position"])


def test_a_journal_is_read_where_its_queue_is() -> None:
    """One who knows only a node without the queue finds the journal, in all its length, and remembers where it is."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            end = await fill(cluster, 20)
            journal = journal_at(others_in(cluster)[0])
            assert (await in_thread(journal.span))[:2] == (0, end)
            assert journal.at == owner_in(cluster).address
            parts = journal.parts(0, end, least=1)
            assert [part.at for part in parts] == [journal.at]
            task = pickle.loads(pickle.dumps(journal))  # noqa: S301 - our own, as Spark sends it
            assert await read(task, parts[0]) == list(range(1, end + 1))

    run(main())


def test_a_part_is_read_though_the_queue_has_moved_since_it_was_planned() -> None:
    """A task whose part names the node that had the journal goes to the one that has it now, and reads the same."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            end = await fill(cluster, 20)
            journal = journal_at(cluster["a"], cluster["b"])
            await in_thread(journal.span)
            (part,) = journal.parts(0, end, least=1)
            before, (to,) = owner_in(cluster), others_in(cluster)
            await move(to, asked=before)
            assert part.at == before.address
            assert await read(journal, part) == list(range(1, end + 1))
            assert journal.at == to.address

    run(main())


def test_a_journal_whose_node_has_gone_is_read_elsewhere() -> None:
    """When the node that had the journal does not answer any more, it is read at the one that took over."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            end = await fill(cluster, 20)
            owner, (other,) = owner_in(cluster), others_in(cluster)
            journal = journal_at(owner, other)
            assert (await in_thread(journal.span)).end == end
            await cluster.members.pop(owner.name).stop()
            span = await in_thread(lambda: journal.span(end))
            assert span.end > end
            assert await read(journal, ReadRange(after=0, until=end, at=owner.address)) == list(range(1, end + 1))
            assert journal.at == other.address

    run(main())


def test_the_pipeline_reads_the_journal_of_a_group() -> None:
    """What is new is that of the group of a queue, and the reader is registered with that journal, wherever it is."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            end = await fill(cluster, 20)
            source = LiveJournal(ServerAddress(server=others_in(cluster)[0].address), "tables", "orders")
            journals = accepted((), await in_thread(source.journals), new_epoch=False)
            (segment,) = await in_thread(lambda: source.new(journals))
            assert segment.covers == (1, end)
            await in_thread(lambda: source.done([journals[0].plus([Covered(*segment.covers)])]))
            readers = (await cluster["a"].done("journal/reader/list", {"queue": "orders"}))["readers"]
            assert [(reader["name"], reader["position"]) for reader in readers] == [("tables", end)]

    run(main())


def test_a_node_that_knows_less_than_was_planned_is_asked_again() -> None:
    """An answer that ends before its part does is not taken for the end: the rest is waited for, and comes once."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            end = await fill(cluster, 20)
            journal = journal_at(cluster["a"])
            reading = asyncio.create_task(read(journal, ReadRange(after=0, until=end + 5)))
            calls = owner_in(cluster).server.tally.calls
            await until(lambda: calls["read_journal"] > 3, "it asks again")
            await more(cluster, 10)
            assert await reading == list(range(1, end + 6))
            short = journal_at(cluster["a"], retries=Retries(patience_s=0.0))
            with pytest.raises(QueueMoving, match="up to"):
                await read(short, ReadRange(after=0, until=end + 1_000))

    run(main())


def test_what_does_not_pass_is_told_at_once() -> None:
    """A queue that there is not, and nodes that never answered, are no reason to wait."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "orders")
            with pytest.raises(QueueNotFound):
                await in_thread(journal_at(cluster["a"], queue="none", retries=NEVER).span)
        with pytest.raises(Disconnected):
            await in_thread(journal_at(cluster["a"], cluster["b"], retries=NEVER).span)

    run(main())


def test_patience_ends() -> None:
    """A journal that was there, and whose nodes are all gone, is given up after as long as was said."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            await fill(cluster, 1)
            journal = journal_at(cluster["a"], retries=Retries(patience_s=0.3, first_s=0.01))
            await in_thread(journal.span)
        with pytest.raises(Disconnected):
            await in_thread(journal.span)

    run(main())


def test_patience_begins_anew_with_every_answer() -> None:
    """What has come counts: only failures in a row use up patience, and one that will not pass is raised at once."""
    patience = Patience(Retries(patience_s=0.0, first_s=0.0))
    with pytest.raises(Disconnected):
        patience.wait(Disconnected("gone"))
    longer = Patience(Retries(patience_s=60.0, first_s=0.0))
    longer.wait(Disconnected("gone"))
    longer.renew()
    longer.wait(QueueMoving("moving", retry_after_ms=1))
    with pytest.raises(InvalidArgument):
        longer.wait(InvalidArgument("no"))


def test_work_that_has_begun_waits_for_its_server() -> None:
    """A task whose server is away as it begins, and hangs up on it, works with it once it is back."""

    async def main() -> None:
        async with nodes(1) as made_nodes:
            place = ServerAddress(server=made_nodes.addresses[0])
            await made_nodes.end(0)
            knocked = asyncio.Event()

            async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.close()
                knocked.set()

            def work() -> int:
                with place.working() as client:
                    client.create_queue("orders")
                    return client.queue("orders").waiting

            port = int(place.server.rpartition(":")[2])
            async with await asyncio.start_server(hang_up, "127.0.0.1", port):
                working = asyncio.create_task(in_thread(work))
                await knocked.wait()
            await made_nodes.start(0)
            assert await working == 0

    run(main())


def test_a_server_that_is_not_there_is_told_before_any_row_is_written() -> None:
    """A frame is not sent to tasks that would wait for a server at an address where there is none."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
    source = FairlaneDataSource({"server": address, "queue": "orders"})
    with pytest.raises(Disconnected):
        source.writer(StructType([StructField("payload", StringType())]), overwrite=False)


def test_a_node_that_has_answered_is_asked_first() -> None:
    """A place is the same with another order of its nodes, and may have one that was only heard of."""
    place = ServerAddress(server="http://a:1, http://b:1", api_key="secret")
    assert place.near(None) == place
    assert place.near("http://b:1").addresses == ["http://b:1", "http://a:1"]
    assert place.near("http://c:1").addresses == ["http://c:1", "http://a:1", "http://b:1"]
    assert place.near("http://b:1").api_key == "secret"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"server": "http://a:1,http://b:1"}, "option queue"),
        ({"server": " , ", "queue": "orders"}, "address"),
        ({"path": "/tmp/x", "queue": "orders"}, "not allowed with path"),  # noqa: S108 - nobody looks there
    ],
)
def test_options_of_a_cluster_that_make_no_sense_are_refused(options: dict[str, str], told: str) -> None:
    """Several nodes need a queue that says whose journal is meant, and files have no queue."""
    with pytest.raises(InvalidArgument, match=told):
        ServerJournal(journal_options(options).place or ServerAddress(server=""), on_trimmed="fail")
