"""Plain messages that wait are rows of columns, of which objects are made."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.core.apply import apply
from fairlane.core.ledger import Ledger
from fairlane.core.rows.chunks import ChunkHome
from fairlane.core.rows.shelves import SHELF_MAX, PlainRow, Shelves
from fairlane.core.schedule import Schedule
from fairlane.journal.records import Enqueued, Leased, QueueSet, Removed, Terms
from fairlane.model.policy import QueuePolicy

CHUNK = ChunkHome("work", 1, 1, 1)


def ledger_with_queue(*, rows_from: int | None = 0) -> Ledger:
    ledger = Ledger(rows_from=rows_from)
    apply(ledger, QueueSet(1, "work", QueuePolicy()), 0)
    return ledger


def enqueued(ledger: Ledger, keys: list[str], **terms: list[int]) -> Enqueued:
    return Enqueued(ledger.next_sequence, "work", [10] * len(keys), [0], Terms(keys, **terms))  # type: ignore[arg-type] # columns by name


def test_a_plain_message_is_no_object_until_it_is_leased() -> None:
    """Messages that only wait are rows, looking at them changes nothing, and a lease makes an object of one."""
    ledger = ledger_with_queue()
    apply(ledger, enqueued(ledger, ["a", "b"]), 5)
    messages = ledger.queues["work"].messages
    assert [(one.number, one.key, one.size, one.enqueued_ms) for one in messages.values()] == [
        (2, "a", 10, 5),
        (3, "b", 10, 5),
    ]
    assert not messages.objects
    apply(ledger, Leased(ledger.next_sequence, "work", [3], 1_000), 6)
    assert list(messages.objects) == [3]
    assert messages[3].token == 4
    assert len(messages) == 2


@pytest.mark.parametrize(
    "terms",
    [{"weights": [2]}, {"costs": [2]}, {"priorities": [0]}, {"due_ms": [9]}, {"deadlines_ms": [9]}, {"caps": [1]}],
)
def test_any_other_message_is_an_object(terms: dict[str, list[int]]) -> None:
    """A message with a term of its own is an object from the start."""
    ledger = ledger_with_queue()
    apply(ledger, enqueued(ledger, ["a"], **terms), 5)
    assert list(ledger.queues["work"].messages.objects) == [2]


@pytest.mark.parametrize(("rows_from", "objects"), [(None, 3), (2, 2), (0, 0)])
def test_only_a_backlog_is_made_of_rows(rows_from: int | None, objects: int) -> None:
    """Below the number from which on messages are rows they are objects."""
    ledger = ledger_with_queue(rows_from=rows_from)
    for _ in range(3):
        apply(ledger, enqueued(ledger, ["a"]), 0)
    assert len(ledger.queues["work"].messages.objects) == objects
    assert len(ledger.queues["work"].messages) == 3


def test_a_backlog_of_many_keys_is_made_of_rows_later() -> None:
    """Where keys have fewer than eight messages each, plain messages are objects beyond the number for others."""
    ledger = ledger_with_queue(rows_from=20_000)
    schedule = Schedule(ledger, 0)
    for _ in range(9):
        record = enqueued(ledger, [f"tenant-{at}" for at in range(5_000)])
        schedule.follow(record, apply(ledger, record, 0), 0)
    assert len(ledger.queues["work"].messages.objects) == 40_000


def test_rows_become_objects_when_their_queue_gets_a_strict_order() -> None:
    """A strict order needs to know the group of each message."""
    ledger = ledger_with_queue()
    apply(ledger, enqueued(ledger, ["a", "b"]), 0)
    apply(ledger, QueueSet(ledger.next_sequence, "work", QueuePolicy(order="strict")), 0)
    assert list(ledger.queues["work"].messages.objects) == [2, 3]


def test_a_row_that_is_removed_leaves_the_schedule() -> None:
    """A row that is cancelled is not picked, and its chunk goes with its last message."""
    ledger = ledger_with_queue()
    schedule = Schedule(ledger, 0)
    record = enqueued(ledger, ["a", "a", "a"])
    schedule.follow(record, apply(ledger, record, 0), 0)
    removed = Removed(ledger.next_sequence, "work", [3], "purged")
    schedule.follow(removed, apply(ledger, removed, 0), 0)
    assert [message.number for message in schedule.pick("work", 10, 0)] == [2, 4]
    assert (ledger.messages, ledger.size) == (2, 20)


def test_a_purge_takes_rows_and_objects_of_one_key() -> None:
    """Messages that are removed together leave the schedule, whether they are linked there, or rows behind those."""
    ledger = ledger_with_queue()
    schedule = Schedule(ledger, 0)
    record = enqueued(ledger, ["a"] * 100)
    schedule.follow(record, apply(ledger, record, 0), 0)
    assert [message.number for message in schedule.pick("work", 1, 0)] == [2]
    removed = Removed(ledger.next_sequence, "work", list(range(3, 101)), "purged")
    schedule.follow(removed, apply(ledger, removed, 0), 0)
    assert [message.number for message in schedule.pick("work", 10, 0)] == [101]


def test_a_schedule_built_anew_keeps_rows_and_objects_in_order() -> None:
    """Rows and objects of one key go in the order in which they began to wait, also after a restart."""
    ledger = ledger_with_queue()
    for costs in ([1], [2], [1], [1], [3], [1]):
        apply(ledger, enqueued(ledger, ["a"], **({"costs": costs} if costs != [1] else {})), 0)
    picked = [message.number for _ in range(40) for message in Schedule(ledger, 0).pick("work", 6, 0)[:6]]
    assert picked[:6] == [2, 3, 4, 5, 6, 7]


def test_a_million_messages_take_eighty_bytes_each() -> None:
    """In ledger and schedule together, a waiting plain message of one of a thousand tenants takes at most 80 bytes."""
    ledger, count = ledger_with_queue(), 200_000
    schedule = Schedule(ledger, 0)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(0, count, 1_000):
        record = enqueued(ledger, [f"tenant-{at}" for at in range(1_000)])
        schedule.follow(record, apply(ledger, record, 0), 0)
        del record
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / count < 80


def test_a_message_enqueued_by_itself_takes_little_more() -> None:
    """A waiting plain message takes at most 100 bytes in ledger and schedule if it was enqueued alone."""
    ledger, count = ledger_with_queue(), 100_000
    schedule = Schedule(ledger, 0)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for at in range(count):
        record = enqueued(ledger, [f"tenant-{at % 1_000}"])
        schedule.follow(record, apply(ledger, record, 0), 0)
        del record
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / count < 100


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("aid"), st.integers(1, 20_000), st.integers(1, 9_000)), max_size=30))
def test_shelves_hold_what_a_dictionary_would(steps: list[tuple[str, int, int]]) -> None:
    """Appended, inserted and removed in any order, the rows are those of a plain dictionary, sorted."""
    shelves, model, last = Shelves(), dict[int, int](), 20_000
    for what, number, count in steps:
        if what == "a":
            shelves.append(last + 1, [count] * count, ["k"] * count, CHUNK, 7)
            model.update((last + 1 + at, count) for at in range(count))
            last += count
        elif what == "i" and number not in model:
            shelves.insert(number, PlainRow("k", CHUNK, count, 7))
            model[number] = count
        elif what == "d":
            for key in sorted(model)[number % 50 :: 1 + number % 3][:count]:
                row = shelves.take(key)
                assert row is not None
                assert row.size == model.pop(key)
            assert shelves.take(number + 10**9) is None
    assert list(shelves) == sorted(model)
    assert len(shelves) == len(model)
    assert shelves.first() == min(model, default=None)
    assert [size for run in shelves.runs() for size in run.sizes] == [model[number] for number in sorted(model)]
    wanted = sorted(model)[::3]
    _, _, sizes, _ = shelves.take_all(wanted)
    assert sizes == [model[number] for number in wanted]
    assert list(shelves) == sorted(set(model) - set(wanted))


def test_a_lone_row_keeps_no_shelf_of_others() -> None:
    """Once most rows of a shelf are gone, it is as small as what is left."""
    shelves = Shelves()
    shelves.append(1, [1] * SHELF_MAX, ["k"] * SHELF_MAX, CHUNK, 0)
    for number in range(1, SHELF_MAX):
        shelves.take(number)
    (run,) = shelves.runs()
    assert list(run.numbers) == [SHELF_MAX]
    assert len(shelves._shelves[0].numbers) < 200
