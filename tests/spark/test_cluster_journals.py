"""One pipeline reads all groups and partitions of a cluster. No Spark is needed here."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from fairlane.assembly import BrokerConfig, open_async_broker
from fairlane.errors import InvalidArgument, QueueNotFound
from fairlane.model.partitions import NUMBER_BITS
from fairlane.spark.pipeline.groups import groups_of
from fairlane.spark.pipeline.journals import JournalCoverage, accepted
from fairlane.spark.pipeline.live import LiveCluster, LiveJournal, live_source
from fairlane.spark.source.server_address import ServerAddress
from tests.spark.test_numbered_journal import serving
from tests.unit.cluster.in_process import Cluster, cluster_of
from tests.unit.cluster.test_serving import made
from tests.unit.server.local_server import run
from tests.unit.server.test_partitions import TENANTS, everybody_knows, message, split


def place(cluster: Cluster) -> ServerAddress:
    """Return the address of all nodes."""
    return ServerAddress(server=",".join(member.address for member in cluster.members.values()))


def test_every_group_and_partition_has_a_journal_in_the_pipeline() -> None:
    """Each is found by its group, with an id of its own and events to read; a new group is found by the next run."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await split(cluster, "orders", 2)
            await everybody_knows(cluster, "orders", 2)
            await made(cluster, "mails")
            messages = [message(key) for key in TENANTS]
            await cluster["a"].done("queue/enqueue", {"queue": "orders", "messages": messages})
            source = await asyncio.to_thread(partial(live_source, place(cluster)))
            assert isinstance(source, LiveCluster)
            offers = await asyncio.to_thread(source.journals)
            known = accepted((), offers, new_epoch=False)
            assert len({each.journal_id for each in known}) == len(known) == 3
            assert sorted(each.after >> NUMBER_BITS for each in known) == [0, 0, 1]
            segments = await asyncio.to_thread(source.new, known)
            assert sorted(segment.queue or "" for segment in segments) == ["mails", "orders~0", "orders~1"]
            assert {segment.journal_id for segment in segments} == {each.journal_id for each in known}
            await made(cluster, "calls")
            later = accepted(known, await asyncio.to_thread(source.journals), new_epoch=False)
            assert len(later) == 4
            await asyncio.to_thread(source.done, later)
            for queue in ("mails", "orders~0", "orders~1", "calls"):
                answer = await cluster["a"].done("journal/reader/list", {"queue": queue})
                assert [reader["name"] for reader in answer["readers"]] == ["pipeline"]

    run(main())


def test_each_journal_of_the_tables_is_compared_with_the_queues_of_its_group() -> None:
    """All of them, or that of one queue; what the cluster or the tables lack is told, and a group may be gone."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await split(cluster, "orders", 2)
            await everybody_knows(cluster, "orders", 2)
            await made(cluster, "mails")
            await asyncio.to_thread(partial(check_groups, place(cluster)))

    run(main())


def check_groups(server: ServerAddress) -> None:
    journals = accepted((), live_source(server).journals(), new_epoch=False)
    gone = JournalCoverage(journal_id="00000000000000aa", group="calls")
    with server.client() as client:
        found = groups_of(client, [*journals, gone], None)
        names = {each.journal.group: (each.queue, each.names(["orders~1"])) for each in found}
        assert names == {
            "mails": ("mails", ["mails", "mails.dlq", "orders~1"]),
            "orders": ("orders~0", ["orders", "orders.dlq", "orders~1"]),
            "orders~1": ("orders~1", ["orders~1", "orders~1.dlq"]),
            "calls": (None, []),
        }
        assert [each.journal.group for each in groups_of(client, journals, "mails")] == ["mails"]
        mails = next(each for each in journals if each.group == "mails")
        unnamed = msgspec.structs.replace(mails, group="")
        assert [each.queue for each in groups_of(client, [unnamed], "mails")] == ["mails"]
        with pytest.raises(InvalidArgument, match="lack the journal of group orders"):
            groups_of(client, [mails, gone], None)
        with pytest.raises(InvalidArgument, match="lack the journal of group mails"):
            groups_of(client, [each for each in journals if each is not mails], "mails")
        with pytest.raises(QueueNotFound, match="'calls' does not exist"):
            groups_of(client, journals, "calls")


def test_a_server_on_its_own_is_one_journal() -> None:
    """Without a cluster the same call reads the one journal of the server, whose group has no name."""

    async def main() -> None:
        async with await open_async_broker(BrokerConfig()) as broker, serving(broker) as address:
            source = await asyncio.to_thread(partial(live_source, ServerAddress(server=address)))
            assert isinstance(source, LiveJournal)
            (offer,) = await asyncio.to_thread(source.journals)
            assert offer.group == ""

    run(main())


def test_one_group_of_a_cluster_can_be_read_alone() -> None:
    """With a queue, only the journal of its group is read; several nodes without one are no single journal."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, "mails", "calls")
            source = live_source(place(cluster), queue="calls")
            (offer,) = await asyncio.to_thread(source.journals)
            assert offer.group == "calls"
            with pytest.raises(InvalidArgument, match="option queue"):
                LiveJournal(place(cluster)).journals()

    run(main())
