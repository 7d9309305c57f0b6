"""The runs of numbers that a caller's producers have used, next to a plain dictionary."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.core.numbered_runs import run_of
from fairlane.core.producer_numbers import ProducerNumbers

ROOM = 60
"""More than one batch weighs, so that no batch is forgotten at once."""
NUMBER_MAX = 700
batches = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.one_of(
            st.sets(st.integers(0, NUMBER_MAX), min_size=1, max_size=8),
            st.integers(0, NUMBER_MAX).map(lambda number: {number}),
            st.integers(0, NUMBER_MAX - 9).map(lambda first: set(range(first, first + 9))),
        ),
    ),
    max_size=30,
)


def fate(numbers: ProducerNumbers, producer: str, number: int) -> int | str:
    """Return what an enqueue would find: the sequence of the first time, or that the number is new or too old."""
    known = numbers.find("q", producer)
    if known is None or number > known.top:
        return "new"
    sequence = known.sequence_of(number, 0)
    return sequence if sequence is not None else "old" if number < known.floor else "new"


@settings(max_examples=60)
@given(batches)
def test_no_number_is_taken_for_another_or_for_new_after_it_was_used(drawn: list[tuple[str, set[int]]]) -> None:
    """Every number has its own sequence or is too old, also if nothing but the floor is left of its producer."""
    numbers = ProducerNumbers(1, weight_max=ROOM)
    used: dict[str, dict[int, int]] = {"a": {}, "b": {}}
    sequence = 1_000
    for producer, some in drawn:
        fresh = sorted(some - used[producer].keys())
        if fresh:
            numbers.add("q", producer, run_of(fresh, len(fresh), sequence, 1))
            used[producer] |= {number: sequence + at for at, number in enumerate(fresh)}
            sequence += len(fresh)
            assert numbers.weight <= ROOM
    restored = ProducerNumbers.of(numbers.image("c"), 1)
    for producer, known in used.items():
        for number in {*known, *range(0, NUMBER_MAX, 31)}:
            found = fate(numbers, producer, number)
            assert found in ((known[number], "old") if number in known else ("new", "old"))
            assert fate(restored, producer, number) == found


def enqueue_one(numbers: ProducerNumbers, number: int, *, producer: str = "a", until_ms: int = 1) -> None:
    """Add the run of a single message, whose sequence is ten times its number."""
    numbers.add("q", producer, run_of([number], 1, 10 * number, until_ms))


def test_single_enqueues_of_a_producer_share_entries() -> None:
    """A thousand single enqueues, out of order by pairs, are a few arrays, and each number has its own sequence."""
    numbers = ProducerNumbers(1)
    for number in range(1_000):
        enqueue_one(numbers, number ^ 1)
    assert (numbers.runs, len(numbers.entries)) == (1_000, 4)
    known = numbers.find("q", "a")
    assert known is not None
    assert [known.sequence_of(number, 0) for number in range(1_000)] == [10 * number for number in range(1_000)]


def test_a_number_that_is_new_after_its_window_is_found_anew() -> None:
    """Runs with numbers in common are not joined, so the later one is found once the window of the first is over."""
    numbers = ProducerNumbers(1)
    numbers.add("q", "a", run_of([3], 10, 100, 5))
    enqueue_one(numbers, 4, until_ms=9)
    known = numbers.find("q", "a")
    assert known is not None
    assert [known.sequence_of(number, 5) for number in (3, 4, 5)] == [None, 40, None]


def test_runs_that_are_apart_in_time_are_forgotten_apart() -> None:
    """A producer that enqueues now and then has no array that stays for long after the first of its runs."""
    numbers = ProducerNumbers(1)
    for number in range(100):
        enqueue_one(numbers, number, until_ms=1_000 * number)
    numbers.expire(50_000)
    assert 50 <= numbers.runs <= 60


def test_a_floor_outlives_the_runs_of_its_producer() -> None:
    """What was forgotten early is too old until its window is over, also in an image; then all is forgotten."""
    numbers = ProducerNumbers(1, weight_max=20)
    enqueue_one(numbers, 7, until_ms=100)
    for number in range(50):
        enqueue_one(numbers, number, producer="b", until_ms=100)
    restored = ProducerNumbers.of(numbers.image("c"), 1)
    for each in (numbers, restored):
        each.expire(99)
        assert fate(each, "a", 7) == "old"
        assert fate(each, "a", 8) == "new"
        each.expire(100)
        assert each.find("q", "a") is None
        assert len(each) == 0


def test_floors_are_bounded() -> None:
    """Of the producers that have a floor and nothing else, the oldest are forgotten."""
    numbers = ProducerNumbers(1, weight_max=20, floors_max=3)
    for at in range(10):
        enqueue_one(numbers, 0, producer=f"p{at}")
    assert len(numbers.floors()) == 3
    assert fate(numbers, "p0", 0) == "new"
    assert [fate(numbers, f"p{at}", 0) for at in (5, 6, 7)] == ["old", "old", "old"]
