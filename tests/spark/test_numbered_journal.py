"""A journal that counts from a great number, as that of a partition does, is read like any other, without Spark."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvicorn
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from fairlane.assembly import AsyncBroker, BrokerConfig, NewMessage, open_group
from fairlane.broker.handlers.internal import ReadSlice
from fairlane.errors import JournalMismatch, JournalTrimmed
from fairlane.gateway.local import LocalGateway
from fairlane.journal.arrow import SCHEMA
from fairlane.journal.events import rows
from fairlane.journal.selection import Selection
from fairlane.model.partitions import NUMBER_BITS, first_number
from fairlane.server.api_keys import ApiKeys
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.http import HttpInterface
from fairlane.server.interfaces.websocket import QuickSocket
from fairlane.spark.pipeline.journals import accepted
from fairlane.spark.pipeline.live import LiveJournal
from fairlane.spark.source.journal_files import JournalFiles
from fairlane.spark.source.journal_reader import JournalPartition, JournalReader, JournalStreamReader
from fairlane.spark.source.journal_server import ServerJournal
from fairlane.spark.source.options import journal_options
from fairlane.spark.source.ranges import JournalBounds, ReadRange
from fairlane.spark.source.server_address import ServerAddress
from tests.kit.waiting import until
from tests.unit.server.house import run

FIRST = 3 << 47
JOURNAL = "00000000000000aa"
MESSAGES = 40

T = TypeVar("T")


@asynccontextmanager
async def serving(broker: AsyncBroker) -> AsyncIterator[str]:
    """Serve a broker on loopback, and return its address."""
    context = ServerContext(LocalGateway(broker), api_keys=ApiKeys(broker, is_required=False))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(HttpInterface(context), lifespan="off", log_config=None, ws=QuickSocket)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve(sockets=[listener]))
        await until(lambda: server.started, "it listens")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


def with_journal(check: Callable[[str, list[int]], None]) -> None:
    """Call a check, in a thread, with the address of a server and the sequences of the events in its journal."""

    async def main() -> None:
        async with await open_group(BrokerConfig(), counts_from=FIRST) as broker, serving(broker) as address:
            await broker.create_queue("orders~3")
            await broker.enqueue_many("orders~3", [NewMessage(payload=b"x")] * MESSAGES)
            pages = (await broker.call(ReadSlice(after=FIRST, count=10_000))).pages
            await asyncio.to_thread(check, address, [event["sequence"] for page in pages for event in rows(page)])

    run(main())


def planned(partitions: Any) -> list[tuple[int, int]]:
    """Return the ranges that were planned."""
    return [(each.part.after, each.part.until) for each in partitions if isinstance(each, JournalPartition)]


def sequences(reader: JournalReader | JournalStreamReader, partitions: Any) -> list[int]:
    """Return the sequences that tasks read."""
    batches = [batch for each in partitions for batch in reader.read(each)]
    return [number for batch in batches for number in batch.column("sequence").to_pylist()]


@pytest.mark.parametrize("after", [None, "beginning", "0", str(FIRST)])
def test_a_batch_has_all_of_it_and_nothing_before(after: str | None) -> None:
    """From the start, however that is said, one small part is planned, and it has every event."""

    def check(address: str, known: list[int]) -> None:
        given = {} if after is None else {"after": after}
        reader = JournalReader(journal_options({"server": address, **given}), SCHEMA)
        partitions = reader.partitions()
        assert planned(partitions) == [(FIRST, known[-1])]
        assert sequences(reader, partitions) == known

    with_journal(check)


@pytest.mark.parametrize("after", [{}, {"after": "0"}, {"reader": "etl"}, {"reader": "etl", "after": "0"}])
def test_a_stream_begins_with_the_first_event(after: dict[str, str]) -> None:
    """A stream from the start reads all there is, in batches of the size it is told, and goes on from there."""

    def check(address: str, known: list[int]) -> None:
        reader = JournalStreamReader(journal_options({"server": address, **after}), SCHEMA)
        start = reader.initialOffset()
        half = reader.latestOffset(start, ReadMaxRows(MESSAGES // 2))
        assert half["sequence"] == FIRST + MESSAGES // 2
        first = reader.partitions(start, half)
        assert planned(first) == [(FIRST, FIRST + MESSAGES // 2)]
        rest = reader.latestOffset(half, ReadAllAvailable())
        found = sequences(reader, [*first, *reader.partitions(half, rest)])
        assert found[: len(known)] == known
        reader.stop()

    with_journal(check)


def test_the_pipeline_wants_nothing_before_the_first_event() -> None:
    """What is new to tables without events is one stretch, from the first event to the last."""

    def check(address: str, known: list[int]) -> None:
        live = LiveJournal(ServerAddress(server=address))
        journals = accepted((), live.journals(), new_epoch=False)
        (segment,) = live.new(journals)
        assert journals[0].after == FIRST
        assert segment.covers == (FIRST + 1, known[-1])

    with_journal(check)


def test_a_journal_that_has_become_shorter_is_told() -> None:
    """What was planned and is not there any more, after a backup was restored say, is no end like any other."""

    def check(address: str, known: list[int]) -> None:
        journal = ServerJournal(ServerAddress(server=address), on_trimmed="fail")
        with pytest.raises(JournalMismatch, match="backup"):
            list(journal.read(ReadRange(after=FIRST, until=known[-1] + 5), Selection(columns=("sequence",))))

    with_journal(check)


def test_exported_segments_are_planned_from_the_first(tmp_path: Path) -> None:
    """Files of such a journal are read from the start too, and a gap after the first is still a gap."""
    (tmp_path / f"journal-{JOURNAL}-{1:020}-{FIRST + 90:020}.parquet").touch()
    (tmp_path / f"journal-{JOURNAL}-{FIRST + 91:020}-{FIRST + 95:020}.parquet").touch()
    assert JournalFiles(str(tmp_path), on_trimmed="fail").span() == (FIRST, FIRST + 95, JOURNAL, 0)
    options = {"path": str(tmp_path), "after": "0", "partitions": "1"}
    plan = planned(JournalReader(journal_options(options), SCHEMA).partitions())
    assert plan == [(FIRST, FIRST + 90), (FIRST + 90, FIRST + 95)]
    (tmp_path / f"journal-{JOURNAL}-{1:020}-{FIRST + 90:020}.parquet").unlink()
    with pytest.raises(JournalTrimmed, match="begins after"):
        JournalReader(journal_options(options), SCHEMA).partitions()


def test_where_a_journal_began_is_known_from_where_it_begins() -> None:
    """What was trimmed does not change which partition a journal is of, nor what it counts from."""
    assert FIRST == first_number("orders~3") == 3 << NUMBER_BITS
    assert [JournalBounds(at, at + 9).first for at in (0, 77, FIRST, FIRST + 5, FIRST - 1)] == [
        0,
        0,
        FIRST,
        FIRST,
        2 << 47,
    ]
