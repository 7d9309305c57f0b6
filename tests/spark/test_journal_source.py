"""The journal as a batch: the same rows from a server and from files, and no more of them than asked for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from tests.spark.journals import journal, make_journal, make_trimmed_journal, sequences
from tests.system.server_process import ServerProcess, serving


def test_a_server_and_exported_segments_give_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """What is exported reads the same from its files as from the server, in every column, and in several parts."""
    make_journal(tmp_path / "data", messages=1_400, exports=tmp_path / "exports")
    files = journal(spark, path=tmp_path / "exports")
    with serving(tmp_path / "data") as server:
        live = journal(spark, server=f"http://{server.address}", partitions=3)
        last = max(sequences(files))
        from_server = live.where(live.sequence <= last).orderBy("sequence").collect()
        assert live.rdd.getNumPartitions() == 3
    assert from_server == files.orderBy("sequence").collect()
    assert {row.kind for row in from_server} >= {"opened", "queue_set", "enqueued", "leased", "acked", "sealed"}
    acked = [row for row in from_server if row.kind == "acked"]
    assert len(acked) > 1_000
    assert files.rdd.getNumPartitions() > 3


@pytest.mark.parametrize("from_files", [False, True], ids=["server", "files"])
def test_filters_and_columns_find_what_they_name(spark: SparkSession, tmp_path: Path, from_files: bool) -> None:
    """Whatever is filtered for, and wherever that is done, the rows are those that hold."""
    last = make_journal(tmp_path / "data", messages=1_200, exports=tmp_path / "exports")
    with serving(tmp_path / "data") as server:
        options: dict[str, Any] = (
            {"path": tmp_path / "exports"} if from_files else {"server": f"http://{server.address}"}
        )
        everything = [row for row in journal(spark, **options).collect() if row.sequence <= last]
        some = everything[len(everything) // 2]
        middle, message, at_ms = some.sequence, some.message_id, some.at_ms
        for condition, holds in (
            ("kind = 'acked'", lambda row: row.kind == "acked"),
            (
                "kind in ('acked', 'opened') and queue = 'mails'",
                lambda row: (row.kind, row.queue) == ("acked", "mails"),
            ),
            (f"sequence > {middle}", lambda row: row.sequence > middle),
            (f"sequence >= {middle} and sequence < {middle + 9}", lambda row: middle <= row.sequence < middle + 9),
            (f"message_id = '{message}'", lambda row: row.message_id == message),
            (f"at_ms > {at_ms}", lambda row: row.at_ms > at_ms),
            (f"at_ms <= {at_ms} and weight = 1", lambda row: row.at_ms <= at_ms and row.weight == 1),
            ("queue is null", lambda row: row.queue is None),
            ("kind = 'acked' and kind = 'leased'", lambda _: False),
            (f"sequence = {middle} or sequence = 1", lambda row: row.sequence in (1, middle)),
        ):
            expected = sorted(row.sequence for row in everything if holds(row))
            for pushdown in ("false", "true"):
                found = journal(spark, pushdown=pushdown, **options).where(condition).where(f"sequence <= {last}")
                assert sequences(found) == expected, (condition, pushdown)
        narrow = spark.read.format("fairlane").schema("kind string, queue string").options(kind="journal", **options)
        kinds = Counter((row.kind, row.queue) for row in everything if row.queue)
        assert Counter((row.kind, row.queue) for row in narrow.load().collect() if row.queue) == kinds
        chosen = journal(spark, columns="queue,kind", kinds="acked", queues="orders", **options)
        assert chosen.columns == ["kind", "queue"]
        assert set(map(tuple, chosen.collect())) == {("acked", "orders")}
        of_one = journal(spark, message_ids=message, since_ms=at_ms, until_ms=at_ms, **options)
        expected = [row.sequence for row in everything if row.message_id == message and row.at_ms == at_ms]
        assert sequences(of_one) == expected


def test_a_frame_can_be_used_again_with_other_filters(spark: SparkSession, tmp_path: Path) -> None:
    """A filter holds where it stands: not for later uses of the frame, nor for others in the same query."""
    last = make_journal(tmp_path / "data", messages=100)
    with serving(tmp_path / "data") as server:
        frame = journal(spark, server=f"http://{server.address}", until=last)
        assert frame.where("sequence = 3").count() == 1
        assert frame.count() == last
        both = frame.where("sequence = 3").union(frame.where("sequence <= 10")).union(frame)
        assert both.count() == 1 + 10 + last


def test_a_filter_saves_the_server_the_rest(spark: SparkSession, tmp_path: Path) -> None:
    """Filters that are pushed down do not come back to Spark, so its plan has no filter for them."""
    make_journal(tmp_path / "data", messages=100)
    with serving(tmp_path / "data") as server:
        frame = journal(spark, server=f"http://{server.address}", pushdown="true").where(
            "sequence > 10 and sequence <= 20"
        )
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert "Filter (" not in plan.replace("isnotnull(sequence", "")
        assert sequences(frame) == list(range(11, 21))
        off = journal(spark, server=f"http://{server.address}").where("sequence > 10")
        assert "Filter (" in off._jdf.queryExecution().executedPlan().toString()


def test_a_range_is_what_after_and_until_say(spark: SparkSession, tmp_path: Path) -> None:
    """A batch can be told where to begin and to end; an empty range has no rows."""
    make_journal(tmp_path / "data", messages=400)
    with serving(tmp_path / "data") as server:
        place = f"http://{server.address}"
        assert sequences(journal(spark, server=place, after=100, until=150)) == list(range(101, 151))
        assert sequences(journal(spark, server=place, after=100, until=100)) == []
        assert sequences(journal(spark, server=place, until=3)) == [1, 2, 3]


def test_what_is_trimmed_is_told_or_skipped(spark: SparkSession, tmp_path: Path) -> None:
    """A position that is gone is an error that says what to do, or is skipped if that was asked for."""
    make_trimmed_journal(tmp_path / "data")
    with serving(tmp_path / "data") as server:
        place = f"http://{server.address}"
        first = sequences(journal(spark, server=place))[0]
        assert first > 2
        with pytest.raises(PySparkException, match=r"begins after position \d+.*on_trimmed=skip"):
            journal(spark, server=place, after=1).collect()
        assert sequences(journal(spark, server=place, after=1, on_trimmed="skip"))[0] == first


def test_a_missing_file_is_told_or_skipped(spark: SparkSession, tmp_path: Path) -> None:
    """Where no file covers a stretch of the journal, reading fails and names it, unless it is to be skipped."""
    make_journal(tmp_path / "data", messages=1_400, exports=tmp_path / "exports")
    files = sorted((tmp_path / "exports").iterdir())
    whole = sequences(journal(spark, path=tmp_path / "exports"))
    files[1].unlink()
    with pytest.raises(PySparkException, match=r"No file in .* covers the journal from \d+ to \d+"):
        journal(spark, path=tmp_path / "exports", until=max(whole)).collect()
    left = sequences(journal(spark, path=tmp_path / "exports", until=max(whole), on_trimmed="skip"))
    assert 0 < len(left) < len(whole)
    assert left == [sequence for sequence in whole if sequence in set(left)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": "http://127.0.0.1:1"}, "Unknown option 'url'. Did you mean server"),
        ({"server": "http://127.0.0.1:1", "redaer": "x"}, "Did you mean reader"),
        ({}, "either the option server, or the option path"),
        ({"path": "/nowhere", "reader": "x"}, "reader is not allowed with path"),
        ({"server": "http://127.0.0.1:1", "partitions": "0"}, "at least 1, not '0'"),
        ({"server": "http://127.0.0.1:1", "kinds": "aked"}, "contains 'aked'"),
        ({"server": "http://127.0.0.1:1", "on_trimmed": "ignore"}, "fail or skip"),
        ({"server": "http://127.0.0.1:1", "after": "end"}, "needs the option reader"),
        ({"api_key": "x", "path": "/x"}, "needs the option server"),
        ({"server": "http://127.0.0.1:1", "kind": "jurnal"}, "Invalid option kind 'jurnal'"),
    ],
)
def test_options_that_make_no_sense_are_refused(spark: SparkSession, options: dict[str, str], told: str) -> None:
    """An option that is unknown, no value for its name, or alone is refused when the frame is made, with a remedy."""
    with pytest.raises(AnalysisException, match=told):
        spark.read.format("fairlane").options(**{"kind": "journal", **options}).load()


def test_columns_that_are_not_there_are_refused(spark: SparkSession, server: ServerProcess) -> None:
    """A schema of one's own may leave columns out, and may not invent any."""
    reader = spark.read.format("fairlane").options(kind="journal", server=f"http://{server.address}")
    with pytest.raises(PySparkException, match=r"Unknown column 'sequenze'"):
        reader.schema("sequenze long").load().collect()
    with pytest.raises(PySparkException, match=r"Column sequence must be bigint, not string"):
        reader.schema("sequence string").load().collect()


def test_a_server_that_is_not_there_is_told(spark: SparkSession) -> None:
    """Without a server the error says that nobody answered, and where."""
    with pytest.raises(PySparkException, match=r"from http://127.0.0.1:9 ended early"):
        journal(spark, server="http://127.0.0.1:9", timeout_s=1).collect()
