"""The journal as a stream: every event once, in bounded batches, and a reader that the broker knows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from fairlane.client import Client
from tests.spark.journals import journal, journal_stream, make_journal, make_trimmed_journal, sequences
from tests.system.server_process import ServerProcess, serving


def drain(stream: DataFrame, out: Path, checkpoint: Path) -> list[int]:
    """Write all that is there to a folder of Parquet files, and return how many rows each batch had."""
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def position_of(client: Client, name: str) -> int:
    """Return how far a reader is."""
    return next(reader.position for reader in client.readers() if reader.name == name)


def test_a_stream_reads_every_event_once_in_bounded_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Batches are as large as they may be, a second run goes on where the first ended, and the reader has moved."""
    last = make_journal(tmp_path / "data", messages=600)
    with serving(tmp_path / "data") as server, Client(f"http://{server.address}") as client:
        stream = journal_stream(spark, server=f"http://{server.address}", reader="sums", rows_max=500)
        sizes = drain(stream, tmp_path / "out", tmp_path / "checkpoint")
        assert max(sizes) <= 500
        assert len(sizes) >= last // 500
        client.enqueue("orders", b"more")
        drain(stream, tmp_path / "out", tmp_path / "checkpoint")
        seen = sequences(spark.read.parquet(str(tmp_path / "out")))
        assert seen == list(range(1, seen[-1] + 1))
        events = client.read_journal(last, count=100).events
        assert [event["kind"] for event in events if event["sequence"] > seen[-1]] == ["reader_set"]
        assert position_of(client, "sums") == seen[-1]


@pytest.mark.long
def test_readers_that_move_on_are_no_news(spark: SparkSession, tmp_path: Path) -> None:
    """Two streams that tell the broker how far they are do not keep each other, or themselves, busy."""
    make_journal(tmp_path / "data", messages=20)
    with serving(tmp_path / "data") as server, Client(f"http://{server.address}") as client:
        for _ in range(2):
            for name in ("one", "two"):
                stream = journal_stream(spark, server=f"http://{server.address}", reader=name)
                drain(stream, tmp_path / f"out_{name}", tmp_path / f"checkpoint_{name}")
        events = client.read_journal(0, count=1_000).events
        assert len([event for event in events if event["kind"] == "reader_set"]) <= 4
        before = len(events)
        query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "idle")).start()
        query.processAllAvailable()
        query.stop()
        assert len(client.read_journal(0, count=1_000).events) <= before + 1


def test_a_new_query_begins_where_its_reader_is(spark: SparkSession, tmp_path: Path) -> None:
    """A reader that is registered goes on from its position; one that begins at the end sees only what comes."""
    last = make_journal(tmp_path / "data", messages=40)
    with serving(tmp_path / "data") as server, Client(f"http://{server.address}") as client:
        client.set_reader("known", 50)
        place = f"http://{server.address}"
        drain(journal_stream(spark, server=place, reader="known"), tmp_path / "known", tmp_path / "checkpoint_known")
        assert sequences(spark.read.parquet(str(tmp_path / "known")))[0] == 51
        late = journal_stream(spark, server=place, reader="late", after="end")
        drain(late, tmp_path / "late", tmp_path / "checkpoint_late")
        client.enqueue("orders", b"new")
        drain(late, tmp_path / "late", tmp_path / "checkpoint_late")
        kinds = {row.kind for row in spark.read.parquet(str(tmp_path / "late")).collect()}
        assert kinds == {"enqueued", "reader_set"}
        assert sequences(spark.read.parquet(str(tmp_path / "late")))[0] > last


def test_exported_segments_stream_as_they_come(spark: SparkSession, tmp_path: Path) -> None:
    """A stream over a folder reads the files that are there, and later those that were added."""
    make_journal(tmp_path / "data", messages=1_000, exports=tmp_path / "exports")
    files = sorted((tmp_path / "exports").iterdir())
    hidden = files[-1].rename(tmp_path / files[-1].name)
    stream = journal_stream(spark, path=tmp_path / "exports")
    drain(stream, tmp_path / "out", tmp_path / "checkpoint")
    before = sequences(spark.read.parquet(str(tmp_path / "out")))
    hidden.rename(files[-1])
    drain(stream, tmp_path / "out", tmp_path / "checkpoint")
    after = sequences(spark.read.parquet(str(tmp_path / "out")))
    assert before == after[: len(before)]
    assert len(before) < len(after)
    assert after == sequences(journal(spark, path=tmp_path / "exports"))


def test_a_stream_whose_position_is_gone_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """A query whose checkpoint is older than the journal fails with the positions, or skips if it may."""
    make_trimmed_journal(tmp_path / "data")
    with serving(tmp_path / "data") as server:
        options: dict[str, Any] = {"server": f"http://{server.address}", "after": 1}
        with pytest.raises(StreamingQueryException, match="begins after position"):
            drain(journal_stream(spark, **options), tmp_path / "out", tmp_path / "checkpoint")
        skipping = journal_stream(spark, on_trimmed="skip", **options)
        drain(skipping, tmp_path / "out2", tmp_path / "checkpoint2")
        assert sequences(spark.read.parquet(str(tmp_path / "out2")))[0] > 2


def test_a_stream_survives_the_server_being_killed(spark: SparkSession, tmp_path: Path) -> None:
    """While the server is away the stream waits; when it is back it goes on, and nothing is lost or doubled."""
    make_journal(tmp_path / "data", messages=200)
    server = ServerProcess(tmp_path / "data")
    server.start()
    try:
        stream = journal_stream(spark, server=f"http://{server.address}")
        drain(stream, tmp_path / "out", tmp_path / "checkpoint")
        server.kill()
        server.start()
        stream = journal_stream(spark, server=f"http://{server.address}")
        drain(stream, tmp_path / "out", tmp_path / "checkpoint")
    finally:
        server.kill()
    out = spark.read.parquet(str(tmp_path / "out"))
    seen = sequences(out)
    opened = {row.sequence for row in out.collect() if row.kind == "opened"}
    assert len(opened) >= 2
    # A store that was killed goes on at a sequence that was certainly never issued: only there may numbers be missing.
    assert seen[0] == 1
    assert all(later == before + 1 or (later > before and later in opened) for before, later in pairwise(seen))
    assert sum(later != before + 1 for before, later in pairwise(seen)) == 1
