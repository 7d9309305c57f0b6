"""Who waits for whom: shares against entitlement, starvation, noisy neighbours."""

from __future__ import annotations

from datetime import date
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from fairlane.model.message import Key
from fairlane.model.shares import entitlements
from fairlane.spark.tables.attempts import attempts
from fairlane.spark.tables.fairness import fairness, fairness_keys
from fairlane.spark.tables.noisy_neighbours import noisy_neighbours
from fairlane.spark.tables.schemas import STARVATION
from fairlane.spark.tables.starvation import starvation
from fairlane.spark.tables.turns import Days, pieces, windows
from fairlane.spark.tables.weights import with_weights
from tests.spark.table_rows import DAY, DAY_0, HOUR, Event, enqueued, event, frame, kept, of, told

MINUTE = 60_000
FIRST_DAY = date(2026, 1, 1)


def span_to(at: int) -> Days:
    """Return the days up to an instant after the beginning of the first."""
    return Days(FIRST_DAY, DAY_0 + at)


def waits(first: int, at: int, until: int | None, key: str, cost: int = 1, **terms: object) -> list[Event]:
    """Return a message that waits for its turn until it is handed out; it takes two sequence numbers."""
    new = enqueued(first, at, key, cost=cost, **terms)  # type: ignore[arg-type] # terms are what they are
    return [new] if until is None else [new, of("leased", first + 1, until, first)]


def pieces_of(events: DataFrame, span: Days) -> DataFrame:
    """Return who waited for a turn, by the events alone."""
    return kept(pieces(kept(attempts(events)), events, span))


def keys_of(events: DataFrame, span: Days) -> DataFrame:
    """Return the shares of keys, and on the way all that they are made of."""
    found = pieces_of(events, span)
    busy = kept(windows(found, span))
    return fairness_keys(with_weights(busy, events, window_length_ms=MINUTE), starvation(found, busy, span))


def test_work_and_waiting_are_summed_by_window(spark: SparkSession) -> None:
    """A wait over several windows counts in each of them by its part, also where nothing else happens."""
    rows = [
        *waits(1, 10_000, 20_000, "acme", 5),
        *waits(3, 50_000, 3 * MINUTE + 30_000, "acme", 2),
        *waits(5, 4 * MINUTE, None, "acme", 7),
    ]
    found = windows(pieces_of(frame(spark, *rows), span_to(4 * MINUTE + 10_000)), span_to(4 * MINUTE + 10_000))
    assert told(found, "window_ms", "waiting_cost", "served_cost", "handed_out", "waited_ms") == [
        (DAY_0, 7, 5, 1, 20_000),
        (DAY_0 + MINUTE, 2, 0, 0, MINUTE),
        (DAY_0 + 2 * MINUTE, 2, 0, 0, MINUTE),
        (DAY_0 + 3 * MINUTE, 2, 2, 1, 30_000),
        (DAY_0 + 4 * MINUTE, 7, 0, 0, 10_000),
    ]


def test_a_wait_over_midnight_is_cut_as_each_day_knew_it(spark: SparkSession) -> None:
    """A day's row does not depend on the next: at its end the message still waits, whatever became of it."""
    known = waits(1, DAY - 30_000, None, "acme")
    served = of("leased", 2, DAY + 90_000, 1)
    for rows, horizon in ((known, DAY - 1), ([*known, served], DAY + 90_000)):
        span = span_to(horizon)
        found = windows(pieces_of(frame(spark, *rows), span), span).where("day = '2026-01-01'")
        assert told(found, "window_ms", "waiting_cost", "served_cost") == [(DAY_0 + DAY - MINUTE, 1, 0)]
    second = windows(pieces_of(frame(spark, *rows), span), span).where("day = '2026-01-02'")
    assert told(second, "window_ms", "waiting_cost", "served_cost", "waited_ms") == [
        (DAY_0 + DAY, 1, 0, MINUTE),
        (DAY_0 + DAY + MINUTE, 1, 1, 30_000),
    ]


def test_entitlement_goes_by_weight_and_stops_at_what_a_key_wants(spark: SparkSession) -> None:
    """Of 12 served, a quiet key is entitled to all it had, and the others to the rest by weight."""
    rows = [event("config_set", 1, 0, name="weight:mail:big", value="2")]
    rows += waits(10, 1, 2, "quiet", 2)
    rows += [each for number in range(8) for each in waits(20 + 2 * number, 1, 3, "big")]
    rows += [each for number in range(2) for each in waits(50 + 2 * number, 1, 3, "small")]
    rows += [each for number in range(40) for each in waits(100 + 2 * number, 1, None, "big")]
    rows += [each for number in range(40) for each in waits(300 + 2 * number, 1, None, "small")]
    keys = keys_of(frame(spark, *rows), span_to(1000))
    columns = ("top_key", "weight", "waiting_cost", "served_cost", "share", "entitled_share", "lag_cost")
    expected = [
        ("big", 2, 48, 8, 8 / 12, (10 * 2 / 3) / 12, 10 * 2 / 3 - 8),
        ("quiet", 1, 2, 2, 2 / 12, 2 / 12, 0),
        ("small", 1, 42, 2, 2 / 12, (10 / 3) / 12, 10 / 3 - 2),
    ]
    for row, wanted in zip(told(keys, *columns), expected, strict=True):
        assert row[:4] == wanted[:4]
        assert row[4:] == pytest.approx(wanted[4:])
    ratios = [8 / (20 / 3), 1, 2 / (10 / 3)]
    ((jain, lag, key, count),) = told(fairness(keys), "jain", "lag_max_cost", "lag_max_key", "keys")
    assert jain == pytest.approx(sum(ratios) ** 2 / (3 * sum(ratio**2 for ratio in ratios)))
    assert (lag, key, count) == (pytest.approx(10 / 3 - 2), "small", 3)


def test_weights_are_found_as_the_broker_finds_them(spark: SparkSession) -> None:
    """Config wins over the policy, the policy over messages, and each holds from when it was said."""
    rows = [
        event("queue_set", 1, 0, queue="mail", policy_json='{"weights": {"b": 3}}'),
        *waits(2, 1, None, "a", weight=7),
        *waits(4, 1, None, "b", weight=7),
        *waits(6, 1, None, "c"),
        event("config_set", 8, MINUTE, name="weight:mail:b", value="9"),
        event("config_set", 9, 2 * MINUTE, name="weight:mail:b"),
        event("queue_set", 10, 3 * MINUTE, queue="mail", policy_json='{"weights": {}}'),
    ]
    keys = keys_of(frame(spark, *rows), span_to(3 * MINUTE + 1))
    by_window = [
        [row[1] for row in told(keys.where(f"window_ms = {DAY_0 + number * MINUTE}"), "top_key", "weight")]
        for number in range(4)
    ]
    assert by_window == [[7, 3, 1], [7, 9, 1], [7, 3, 1], [7, 7, 1]]


def test_config_of_a_queue_holds_in_its_partitions(spark: SparkSession) -> None:
    """``weight:mail:b`` is the weight of b in the journal of ``mail~1``, too."""
    rows = [
        event("config_set", 1, 0, name="weight:mail:b", value="9"),
        enqueued(2, 1, "a", queue="mail~1"),
        enqueued(3, 1, "b", queue="mail~1"),
    ]
    keys = keys_of(frame(spark, *rows), span_to(1_000))
    assert told(keys, "queue", "top_key", "weight") == [("mail~1", "a", 1), ("mail~1", "b", 9)]


def test_a_key_that_gets_nothing_for_long_starves(spark: SparkSession) -> None:
    """An episode lasts from the last hand-out, or the beginning of the wait, to the next hand-out."""
    rows = [
        *waits(1, 0, 1_000, "victim"),
        *waits(3, 500, 151_000, "victim"),
        *waits(5, 100_000, 151_000, "victim"),
        *waits(7, 160_000, 200_000, "victim"),
        *[each for number in range(10) for each in waits(100 + 2 * number, 65_000, 70_000 + number, "other")],
    ]
    events, span = frame(spark, *rows), span_to(10 * MINUTE)
    found = pieces_of(events, span)
    episodes = starvation(found, windows(found, span), span)
    columns = ("top_key", "from_ms", "until_ms", "lasted_ms", "served_meanwhile")
    assert told(episodes, *columns) == [("victim", DAY_0 + 1_000, DAY_0 + 151_000, 150_000, 10)]
    starved = told(keys_of(events, span).where("starved_ms > 0"), "top_key", "window_ms", "starved_ms")
    assert starved == [
        ("victim", DAY_0, 59_000),
        ("victim", DAY_0 + MINUTE, MINUTE),
        ("victim", DAY_0 + 2 * MINUTE, 31_000),
    ]


def test_what_is_given_up_or_never_served_starves_too(spark: SparkSession) -> None:
    """A message that is removed at its deadline ends an episode; one that waits on has one that goes on."""
    rows = [
        *waits(1, 0, None, "dropped"),
        of("removed", 2, 90_000, 1, reason="deadline"),
        *waits(3, 30_000, None, "stuck"),
        *waits(5, 0, None, "throttled", throttles=["smtp"]),
    ]
    span = span_to(5 * MINUTE)
    found = pieces_of(frame(spark, *rows), span)
    episodes = starvation(found, windows(found, span), span)
    assert told(episodes, "top_key", "from_ms", "until_ms", "lasted_ms") == [
        ("dropped", DAY_0, DAY_0 + 90_000, 90_000),
        ("stuck", DAY_0 + 30_000, None, 270_000),
    ]


def test_the_delay_of_a_victim_is_divided_by_what_others_were_served(spark: SparkSession) -> None:
    """Ten seconds of waiting fall to the keys that were served in that minute, by cost, its own among them."""
    rows = [
        *waits(1, 0, 10_000, "victim", 1),
        *waits(3, 1_000, 1_000, "loud", 6),
        *waits(5, 2_000, 2_000, "loud", 1),
        *waits(7, 3_000, 3_000, "mild", 2),
        *waits(9, HOUR, HOUR + 500, "mild", 2),
    ]
    span = span_to(2 * HOUR)
    found = noisy_neighbours(windows(pieces_of(frame(spark, *rows), span), span))
    columns = ("hour_ms", "victim", "neighbour", "delay_ms", "victim_waited_ms", "part", "neighbour_cost", "rank")
    assert told(found, *columns) == [
        (DAY_0, "victim", "loud", 7_000, 10_000, pytest.approx(0.7), 7, 1),
        (DAY_0, "victim", "mild", 2_000, 10_000, pytest.approx(0.2), 2, 2),
        (DAY_0, "victim", "victim", 1_000, 10_000, pytest.approx(0.1), 1, None),
    ]


def test_a_pause_in_the_middle_of_a_wait_is_cut_out(spark: SparkSession) -> None:
    """Before and after the pause the message waits for its turn, meanwhile its key has no work."""
    rows = [
        *waits(1, 10_000, None, "acme", 3),
        event("queue_paused", 3, 20_000, queue="mail", fairness_key=["acme"], is_paused=True),
        event("queue_paused", 4, 3 * MINUTE + 30_000, queue="mail", fairness_key=["acme"], is_paused=False),
        of("leased", 5, 4 * MINUTE + 10_000, 1, paused_ms=3 * MINUTE + 10_000),
    ]
    span = span_to(4 * MINUTE + 20_000)
    found = windows(pieces_of(frame(spark, *rows), span), span)
    assert told(found, "window_ms", "waiting_cost", "served_cost", "handed_out", "waited_ms") == [
        (DAY_0, 3, 0, 0, 10_000),
        (DAY_0 + 3 * MINUTE, 3, 0, 0, 30_000),
        (DAY_0 + 4 * MINUTE, 3, 3, 1, 10_000),
    ]


def test_a_pause_within_a_window_counts_the_work_once(spark: SparkSession) -> None:
    """A message that is paused and resumed in the same minute is work of that minute once."""
    rows = [
        *waits(1, 10_000, None, "acme", 3),
        event("queue_paused", 3, 20_000, queue="mail", is_paused=True),
        event("queue_paused", 4, 30_000, queue="mail", is_paused=False),
        of("leased", 5, 50_000, 1, paused_ms=10_000),
    ]
    span = span_to(MINUTE)
    found = windows(pieces_of(frame(spark, *rows), span), span)
    assert told(found, "waiting_cost", "served_cost", "waited_ms") == [(3, 3, 30_000)]


def test_who_is_paused_does_not_starve(spark: SparkSession) -> None:
    """Neither while the pause is on, nor over midnight, nor below a paused key; the others of the queue still do."""
    rows = [
        event("queue_paused", 1, 0, queue="mail", fairness_key=["acme"], is_paused=True),
        *waits(2, 1_000, None, "acme/mobile"),
        *waits(4, 1_000, None, "other"),
        event("queue_paused", 6, 0, queue="calls", is_paused=True),
        enqueued(7, 1_000, "acme", queue="calls"),
        event("queue_paused", 8, DAY + 1_000, queue="calls", is_paused=False),
        of("leased", 9, DAY + 2_000, 7, queue="calls", paused_ms=DAY),
    ]
    span = span_to(DAY + 5 * MINUTE)
    events = frame(spark, *rows)
    found = pieces_of(events, span)
    episodes = starvation(found, windows(found, span), span)
    assert told(episodes, "day", "queue", "top_key") == [
        (FIRST_DAY, "mail", "other"),
        (date(2026, 1, 2), "mail", "other"),
    ]
    assert told(windows(found, span).where("queue = 'calls'"), "window_ms", "served_cost", "waited_ms") == [
        (DAY_0 + DAY, 1, 1_000)
    ]


def test_a_removed_queue_ends_its_pause(spark: SparkSession) -> None:
    """A queue that is made again under the name is not paused."""
    rows = [
        event("queue_paused", 1, 0, queue="mail", is_paused=True),
        event("queue_removed", 2, MINUTE, queue="mail"),
        *waits(3, 2 * MINUTE, 4 * MINUTE, "acme"),
    ]
    span = span_to(5 * MINUTE)
    found = pieces_of(frame(spark, *rows), span)
    assert told(found, "since_ms", "until_ms", "is_served") == [(DAY_0 + 2 * MINUTE, DAY_0 + 4 * MINUTE, True)]


def test_entitlement_is_the_one_that_the_model_defines(spark: SparkSession) -> None:
    """On random windows, Spark finds the entitled share that dashboard, metrics and command line show."""
    chance = Random(13)
    drawn = [
        (window, f"key-{number}", chance.randint(1, 5), served, served + chance.randint(0, 40))
        for window in range(40)
        for number in range(chance.randint(1, 6))
        for served in [chance.randint(0, 20)]
    ]
    rows = [
        ("mail", top_key, FIRST_DAY, DAY_0 + window * MINUTE, served, 1, waiting, 0, weight)
        for window, top_key, weight, served, waiting in drawn
    ]
    columns = "queue string, top_key string, day date, window_ms long, served_cost long, handed_out long"
    weighted = spark.createDataFrame(rows, f"{columns}, waiting_cost long, waited_ms long, weight long")
    nobody = spark.createDataFrame([], STARVATION.schema)
    found = {
        (row["window_ms"], row["top_key"]): row["lag_cost"] + row["served_cost"]
        for row in fairness_keys(weighted, nobody).collect()
    }
    for window in range(40):
        here = {row[1]: row for row in drawn if row[0] == window}
        total = sum(row[3] for row in here.values())
        weights: dict[Key, int] = {key: row[2] for key, row in here.items()}
        expected = entitlements(total, {key: row[4] for key, row in here.items()}, weights.__getitem__)
        told_here = {key: found[DAY_0 + window * MINUTE, key] for key in here}
        assert told_here == pytest.approx(expected)
