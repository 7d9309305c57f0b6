"""What is folded from records for viewers: counts by queue, costs by key over windows, and what held keys back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fairlead.journal.records import Acked, AnyRecord, Dead, Enqueued, Leased, Redriven, Removed, Returned, Terms
from fairlead.model.message import Key
from fairlead.server import live_fold
from fairlead.server.live_fold import Held, KeyWindows, LiveFold, Window


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


def test_keys_are_counted_only_where_somebody_watches() -> None:
    """Costs that came and costs that were served are told by key, of the watched queue."""
    fold = LiveFold(look)
    fold.watched["mail"] = windows = KeyWindows(0)
    fold.note(RECORDS)
    windows.roll(1_000)
    assert [window.totals for window in windows.arrived] == [{"acme": 5, "bakery": 1}] * 3
    assert [window.totals for window in windows.served] == [{"acme": 4, "bakery": 1}] * 3
    assert windows.costs == {"acme": 2}
    assert list(fold.watched) == ["mail"]


def test_a_window_forgets() -> None:
    """What is older than the window is gone, at most a tenth late."""
    window = Window(10_000, 0)
    window.add(Counter({"a": 3}), 0)
    window.add(Counter({"a": 1, "b": 2}), 5_000)
    assert window.totals == {"a": 4, "b": 2}
    window.add(Counter(), 11_000)
    assert window.totals == {"a": 1, "b": 2}
    window.add(Counter(), 16_100)
    assert window.totals == {}
    assert (window.covered_ms(4_000), window.covered_ms(16_100)) == (4_000, 10_000)


def test_keys_beyond_so_many_are_counted_together() -> None:
    """No cost is lost, and no more keys are kept than may be."""
    window = Window(10_000, 0)
    window.add(Counter({f"key-{number}": 1 for number in range(live_fold.KEYS_MAX + 5)}), 0)
    assert len(window.totals) == live_fold.KEYS_MAX + 1
    assert (window.totals[None], window.totals.total()) == (5, live_fold.KEYS_MAX + 5)


def test_what_held_a_key_back_counts_for_a_while() -> None:
    """A throttle that has a token at the moment is remembered for ten seconds, and not for longer."""
    windows = KeyWindows(0)
    windows.hold({"post": Held("throttle", "smtp")}, 1_000)
    windows.hold({}, 10_000)
    assert windows.held["post"].by == Held("throttle", "smtp")
    windows.hold({}, 11_000)
    assert windows.held == {}
