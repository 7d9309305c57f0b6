"""What is folded from records for viewers: counts by queue, costs by key over windows, and what held keys back."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from fairlane.journal.records import Acked, AnyRecord, Dead, Enqueued, Leased, Redriven, Removed, Returned, Terms
from fairlane.model.message import Key
from fairlane.server.live.fold import LiveFold
from fairlane.server.live.windows import Held, KeyWindows, Window


def look(_queue: str, numbers: Iterable[int]) -> tuple[list[Key], list[int]]:
    """Say that odd messages are of acme and cost 2, and even ones of bakery."""
    return ["acme" if number % 2 else "bakery" for number in numbers], [1 + number % 2 for number in numbers]


def enqueued(sequence: int, keys: list[Key], costs: list[int] | None = None) -> Enqueued:
    """Make the record of an enqueue."""
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
    """A defer is no failure, a dead letter comes to its queue of dead letters, and a redriven one comes back."""
    fold = LiveFold(look)
    fold.note(RECORDS)
    mail, dlq = fold.counts["mail"], fold.counts["mail.dlq"]
    assert (mail.enqueued, mail.leased, mail.acked, mail.failed, mail.dead, mail.removed) == (4, 3, 1, 2, 1, 1)
    assert (dlq.enqueued, dlq.removed) == (1, 1)


def by_key(windows: KeyWindows, window: Window) -> dict[Key, int]:
    """Return the costs of a window by key."""
    return {key: windows.of(window, key) for key in windows.busiest(window, 1_000)}


def test_keys_are_counted_only_where_somebody_watches() -> None:
    """Costs that came and costs that were claimed are told by key, of the watched queue."""
    fold = LiveFold(look)
    fold.watched["mail"] = windows = KeyWindows(0)
    fold.note(RECORDS)
    fold.note([Leased(13, "mail", [1, 2, 3], 99, claim=1)])
    windows.roll(1_000)
    assert [by_key(windows, window) for window in windows.arrived] == [{"acme": 5, "bakery": 1}] * 3
    assert [by_key(windows, window) for window in windows.served] == [{"acme": 4, "bakery": 1}] * 3
    assert windows.costs == {"acme": 2}
    assert list(fold.watched) == ["mail"]


def test_a_window_forgets() -> None:
    """What is older than the window is gone, at most a tenth late."""
    window = Window(10_000, 0)
    window.add([0, 3], 0)
    window.add([0, 1, 2], 5_000)
    assert window.totals == [0, 4, 2]
    window.add([], 11_000)
    assert window.totals == [0, 1, 2]
    window.add([], 16_100)
    assert window.totals == [0, 0, 0]
    assert (window.covered_ms(4_000), window.covered_ms(16_100)) == (4_000, 10_000)


def test_keys_beyond_so_many_are_counted_together() -> None:
    """No cost is lost, and no more keys are kept than may be."""
    windows = KeyWindows(0, keys_max=20)
    windows.serve([f"key-{number}" for number in range(25)], [1] * 25)
    windows.roll(0)
    served = windows.served[0]
    assert (len(windows.places), len(windows.busiest(served, 1_000)), sum(served.totals)) == (20, 20, 25)


def test_places_of_forgotten_keys_are_given_to_others() -> None:
    """When every window has forgotten a key somebody else has its place, and whoever is there keeps what it had."""
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


def test_of_very_many_arrivals_some_stand_for_all() -> None:
    """Beyond some thousands between two looks arrivals are an estimate, close to the truth for every key."""
    windows = KeyWindows(0, chance=Random(7))
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


def test_what_is_served_is_counted_to_the_last_message() -> None:
    """However much is served, nothing is estimated: shares are told from it."""
    windows = KeyWindows(0, chance=Random(7))
    keys: list[Key] = ["loud"] * 90
    keys += ["quiet"] * 10
    for _ in range(1_000):
        windows.serve(keys, [1] * 100)
    windows.roll(1_000)
    assert by_key(windows, windows.served[0]) == {"loud": 90_000, "quiet": 10_000}


def test_what_held_a_key_back_counts_for_a_while() -> None:
    """A throttle that has a token at the moment is remembered for ten seconds, and not for longer."""
    windows = KeyWindows(0)
    windows.hold({"post": Held("throttle", "smtp")}, 1_000)
    windows.hold({}, 10_000)
    assert windows.held["post"].by == Held("throttle", "smtp")
    windows.hold({}, 11_000)
    assert windows.held == {}
