"""The fold behind the live feed: counts by queue, costs by key over windows, and what held keys back."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from fairlane.journal.records import Acked, AnyRecord, Dead, Enqueued, Leased, Redriven, Removed, Returned, Terms
from fairlane.model.message import Key
from fairlane.server.live.fold import LiveFold
from fairlane.server.live.windows import HeldBy, KeyWindows, Window


def lookup(_queue: str, numbers: Iterable[int]) -> tuple[list[Key], list[int]]:
    """Return acme and cost 2 for odd messages, bakery and cost 1 for even ones."""
    return ["acme" if number % 2 else "bakery" for number in numbers], [1 + number % 2 for number in numbers]


def enqueued(sequence: int, keys: list[Key], costs: list[int] | None = None) -> Enqueued:
    """Create the record of an enqueue."""
    return Enqueued(sequence, "mail", [1] * len(keys), [0], Terms(keys, costs=costs))


RECORDS: list[AnyRecord] = [
    enqueued(1, ["acme", "bakery", "acme"], [2, 1, 2]),
    Leased(4, "mail", [1, 2, 3], 99),
    Acked(7, "mail", [1]),
    Returned(8, "mail", [2], "failure"),
    Returned(9, "mail", [2], "defer"),
    Dead(10, "mail", [3], "max_attempts", "failure"),
    Redriven(11, "mail.dlq", [3], "mail", Terms(["acme"])),
    Removed(12, "mail", [2], "purged"),
]


def test_records_are_counted_by_queue() -> None:
    """A deferral is no failure; a dead letter arrives at the dead-letter queue, and a redriven one at its queue."""
    fold = LiveFold(lookup)
    fold.note(RECORDS)
    mail, dlq = fold.counts["mail"], fold.counts["mail.dlq"]
    assert (mail.enqueued, mail.leased, mail.acked, mail.failed, mail.dead, mail.removed) == (4, 3, 1, 2, 1, 1)
    assert (dlq.enqueued, dlq.removed) == (1, 1)


def by_key(windows: KeyWindows, window: Window) -> dict[Key, int]:
    """Return the costs of a window by key."""
    return {key: windows.of(window, key) for key in windows.busiest(window, 1_000)}


def test_keys_are_counted_only_for_watched_queues() -> None:
    """The watched queue has its arrived and claimed costs by key."""
    fold = LiveFold(lookup)
    fold.watched["mail"] = windows = KeyWindows(0)
    fold.note(RECORDS)
    fold.note([Leased(13, "mail", [1, 2, 3], 99, claim=1)])
    windows.roll(1_000)
    assert [by_key(windows, window) for window in windows.arrived] == [{"acme": 5, "bakery": 1}] * 3
    assert [by_key(windows, window) for window in windows.served] == [{"acme": 4, "bakery": 1}] * 3
    assert windows.costs == {"acme": 2}
    assert list(fold.watched) == ["mail"]


def test_a_window_drops_old_costs() -> None:
    """Costs older than the window are dropped, at most a tenth of it late."""
    window = Window(10_000, 0)
    window.add([0, 3], 0)
    window.add([0, 1, 2], 5_000)
    assert window.totals == [0, 4, 2]
    window.add([], 11_000)
    assert window.totals == [0, 1, 2]
    window.add([], 16_100)
    assert window.totals == [0, 0, 0]
    assert (window.covered_ms(4_000), window.covered_ms(16_100)) == (4_000, 10_000)


def test_keys_beyond_the_limit_are_counted_together() -> None:
    """No cost is lost, and the number of keys stays within the limit."""
    windows = KeyWindows(0, keys_max=20)
    windows.serve([f"key-{number}" for number in range(25)], [1] * 25)
    windows.roll(0)
    served = windows.served[0]
    assert (len(windows.indexes), len(windows.busiest(served, 1_000)), sum(served.totals)) == (20, 20, 25)


def test_indexes_of_dropped_keys_are_reused() -> None:
    """A key that no window has any more frees its index, and the other keys keep their costs."""
    windows = KeyWindows(0, keys_max=3)
    windows.serve(["old", "older", "stays"], [1, 1, 1])
    windows.roll(0)
    windows.serve(["stays"], [1])
    windows.roll(200_000)
    windows.roll(301_000)
    windows.serve(["new", "newer", "stays"], [5, 7, 1])
    windows.roll(302_000)
    assert by_key(windows, windows.served[2]) == {"newer": 7, "new": 5, "stays": 2}
    assert by_key(windows, windows.served[0]) == {"newer": 7, "new": 5, "stays": 1}


def test_very_many_arrivals_are_sampled() -> None:
    """Beyond some thousands between two samples, arrivals are an estimate that is close for every key."""
    windows = KeyWindows(0, random=Random(7))
    keys: list[Key] = ["loud"] * 90
    keys += ["quiet"] * 10
    for _ in range(1_000):
        windows.arrive(keys, None)
    windows.roll(1_000)
    found = by_key(windows, windows.arrived[0])
    assert found.keys() == {"loud", "quiet"}
    assert abs(found["loud"] - 90_000) < 1_500
    assert abs(found["quiet"] - 10_000) < 1_500
    windows.arrive(keys, None)
    windows.roll(2_000)
    assert by_key(windows, windows.arrived[0])["quiet"] == found["quiet"] + 10


def test_service_is_counted_exactly() -> None:
    """Served costs are never estimated, because shares are computed from them."""
    windows = KeyWindows(0, random=Random(7))
    keys: list[Key] = ["loud"] * 90
    keys += ["quiet"] * 10
    for _ in range(1_000):
        windows.serve(keys, [1] * 100)
    windows.roll(1_000)
    assert by_key(windows, windows.served[0]) == {"loud": 90_000, "quiet": 10_000}


def test_a_hold_counts_for_ten_seconds() -> None:
    """A throttle that has a token again still counts for ten seconds, and no longer."""
    windows = KeyWindows(0)
    windows.hold({"post": HeldBy("throttle", "smtp")}, 1_000)
    windows.hold({}, 10_000)
    assert windows.held["post"].by == HeldBy("throttle", "smtp")
    windows.hold({}, 11_000)
    assert windows.held == {}
