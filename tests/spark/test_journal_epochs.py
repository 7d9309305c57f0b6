"""At the source of Spark: offsets name their journal, and another one is refused. No Spark is needed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from fairlane.assembly import AsyncBroker, BrokerConfig, NewMessage, open_async_broker
from fairlane.errors import InvalidArgument, JournalMismatch
from fairlane.journal.arrow import SCHEMA
from fairlane.journal.segments import file_name
from fairlane.spark.pipeline.journals import Covered, JournalCoverage, accepted
from fairlane.spark.pipeline.live import LiveJournal
from fairlane.spark.source.journal_files import JournalFiles
from fairlane.spark.source.journal_reader import JournalPartition, JournalReader, JournalStreamReader
from fairlane.spark.source.options import journal_options
from fairlane.spark.source.server_address import ServerAddress
from tests.spark.test_numbered_journal import sequences, serving
from tests.unit.server.local_server import run

ALL = ReadAllAvailable()


def streamed(address: str, **options: str) -> JournalStreamReader:
    """Return a reader of a server's journal."""
    return JournalStreamReader(journal_options({"server": address, "after": "0", **options}), SCHEMA)


def with_two_brokers(check: Callable[[str, str], None]) -> None:
    """Call a check, in a thread, with the addresses of two brokers, as if one had replaced the other."""

    async def main() -> None:
        async with (
            await open_async_broker(BrokerConfig()) as old,
            await open_async_broker(BrokerConfig()) as new,
            serving(old) as before,
            serving(new) as after,
        ):
            await fill(old, 40)
            await fill(new, 10)
            await asyncio.to_thread(check, before, after)

    run(main())


async def fill(broker: AsyncBroker, count: int) -> None:
    """Enqueue messages."""
    await broker.create_queue("jobs")
    await broker.enqueue_many("jobs", [NewMessage(payload=b"x")] * count)


def read_all(address: str) -> dict[str, Any]:
    """Read a journal to its end, and return the offset that a checkpoint then has."""
    reader = streamed(address)
    return reader.latestOffset(reader.initialOffset(), ALL)


def test_a_checkpoint_of_another_journal_is_refused() -> None:
    """A query that continues on a broker that began again stops with both ids, whether it is shorter or longer."""

    def check(before: str, after: str) -> None:
        old, new = read_all(before), read_all(after)
        for start, there in ((old, after), (new, before)):
            reader = streamed(there)
            with pytest.raises(JournalMismatch) as caught:
                reader.latestOffset(start, ALL)
            assert old["journal_id"] in str(caught.value)
            assert new["journal_id"] in str(caught.value)

    with_two_brokers(check)


def test_a_declared_epoch_reads_the_new_journal_from_its_beginning() -> None:
    """With ``new_epoch`` the next batch has all events of the new journal, also when it is repeated."""

    def check(before: str, after: str) -> None:
        start = read_all(before)
        reader = streamed(after, new_epoch="true")
        end = reader.latestOffset(start, ALL)
        assert end["journal_id"] != start["journal_id"]
        for _ in range(2):
            found = sequences(reader, reader.partitions(start, end))
            assert found == list(range(1, end["sequence"] + 1))
        assert streamed(after).latestOffset(end, ALL) == end

    with_two_brokers(check)


def test_a_task_does_not_read_another_journal_than_was_planned() -> None:
    """A server that is replaced between planning and reading gives an error, not the rows of another journal."""

    def check(before: str, after: str) -> None:
        planned = streamed(before).partitions({"sequence": 0, "journal_id": ""}, read_all(before))
        parts = [each for each in planned if isinstance(each, JournalPartition)]
        moved = [replace(each, part=replace(each.part, at=after)) for each in parts]
        with pytest.raises(JournalMismatch, match="This task"):
            sequences(streamed(after), moved)

    with_two_brokers(check)


def test_a_batch_can_name_its_journal() -> None:
    """The option ``journal_id`` reads that journal and no other."""

    def check(before: str, after: str) -> None:
        wanted = read_all(before)["journal_id"]
        mine = JournalReader(journal_options({"server": before, "journal_id": wanted}), SCHEMA)
        assert len(sequences(mine, mine.partitions())) >= 42
        with pytest.raises(JournalMismatch):
            JournalReader(journal_options({"server": after, "journal_id": wanted}), SCHEMA).partitions()

    with_two_brokers(check)


def test_the_pipeline_learns_which_journal_a_server_has() -> None:
    """Tables that are made from one broker refuse the other, even while it has fewer events than they do."""

    def check(before: str, after: str) -> None:
        first = LiveJournal(ServerAddress(server=before)).journals()
        second = LiveJournal(ServerAddress(server=after)).journals()
        known = accepted((), first, new_epoch=False)
        with pytest.raises(JournalMismatch):
            accepted(known, second, new_epoch=False)

    with_two_brokers(check)


def test_a_backup_that_was_restored_and_has_grown_again_is_refused(tmp_path: Path) -> None:
    """A backup that is not declared as restored has the same id, but not the event that the tables know as the last."""

    async def main() -> None:
        async with await open_async_broker(tmp_path / "store") as broker:
            await fill(broker, 5)
        shutil.copytree(tmp_path / "store", tmp_path / "backup")
        async with await open_async_broker(tmp_path / "store") as broker, serving(broker) as address:
            await broker.enqueue_many("jobs", [NewMessage()] * 5)
            known = await asyncio.to_thread(covered, LiveJournal(ServerAddress(server=address)))
        async with await open_async_broker(tmp_path / "backup") as broker, serving(broker) as address:
            await broker.enqueue_many("jobs", [NewMessage()] * 500)
            source = LiveJournal(ServerAddress(server=address))
            journals = accepted(known, await asyncio.to_thread(source.journals), new_epoch=False)
            with pytest.raises(JournalMismatch, match="has another event at"):
                await asyncio.to_thread(source.new, journals)
        async with await open_async_broker(tmp_path / "store") as broker, serving(broker) as address:
            source = LiveJournal(ServerAddress(server=address))
            assert len(await asyncio.to_thread(source.new, known)) == 1

    run(main())


def covered(source: LiveJournal) -> list[JournalCoverage]:
    """Return the coverage of tables that have the whole journal of a server."""
    (known,) = accepted((), source.journals(), new_epoch=False)
    (segment,) = source.new([known])
    with source.server.client() as client:
        last_ms = client.read_journal(segment.covers[0] - 1, count=1_000).events[-2]["at_ms"]
    return [known.plus([Covered(*segment.covers, 0, last_ms)])]


def test_a_folder_may_be_empty_at_first_and_again_later(tmp_path: Path) -> None:
    """A stream over files begins before the first one is exported, and goes on after old ones were removed."""

    def latest(start: dict[str, Any]) -> dict[str, Any]:
        reader = JournalStreamReader(journal_options({"path": str(tmp_path)}), SCHEMA)
        return reader.latestOffset(start, ALL)

    start = JournalStreamReader(journal_options({"path": str(tmp_path)}), SCHEMA).initialOffset()
    assert latest(start) == start
    first = tmp_path / file_name("00000000000000aa", (1, 90))
    first.touch()
    end = {"sequence": 90, "journal_id": "00000000000000aa"}
    assert latest(start) == end
    first.unlink()
    assert latest(end) == end
    (tmp_path / file_name("00000000000000bb", (1, 500))).touch()
    with pytest.raises(JournalMismatch):
        latest(end)


def test_a_folder_with_two_journals_asks_which(tmp_path: Path) -> None:
    """Segments of several journals are never read as one; the option ``journal_id`` names one of them."""
    for journal_id, last in (("00000000000000aa", 90), ("00000000000000bb", 40)):
        (tmp_path / file_name(journal_id, (1, last))).touch()
    with pytest.raises(InvalidArgument, match="00000000000000aa, 00000000000000bb"):
        JournalFiles(str(tmp_path), on_trimmed="fail").span()
    one = JournalFiles(str(tmp_path), on_trimmed="fail", journal_id="00000000000000bb")
    assert one.span()[:3] == (0, 40, "00000000000000bb")
    with pytest.raises(InvalidArgument, match="16 hexadecimal digits"):
        journal_options({"path": str(tmp_path), "journal_id": "main"})
