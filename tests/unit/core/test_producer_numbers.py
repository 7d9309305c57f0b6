"""The runs of numbers that a caller's producers have used, next to a plain dictionary."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.core.producer_numbers import ProducerNumbers, run_of

ROOM = 6
"""More than the blocks of one batch, so that no batch is forgotten at once."""
NUMBER_MAX = 700
batches = st.lists(
    st.tuples(st.sampled_from("ab"), st.sets(st.integers(0, NUMBER_MAX), min_size=1, max_size=8)), max_size=20
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
    """Every number has its own sequence or is too old, as long as something is left of its producer."""
    numbers = ProducerNumbers(1, blocks_max=ROOM)
    used: dict[str, dict[int, int]] = {"a": {}, "b": {}}
    sequence = 1_000
    for producer, some in drawn:
        fresh = sorted(some - used[producer].keys())
        if fresh:
            numbers.add("q", producer, run_of(fresh, len(fresh), sequence, 1))
            used[producer] |= {number: sequence + at for at, number in enumerate(fresh)}
            sequence += len(fresh)
            assert numbers.blocks <= ROOM
        for each in used:
            if numbers.find("q", each) is None:
                used[each] = {}
    restored = ProducerNumbers.of(numbers.image("c"), 1)
    for producer, known in used.items():
        for number in {*known, *range(0, NUMBER_MAX, 31)}:
            found = fate(numbers, producer, number)
            assert found in ((known[number], "old") if number in known else ("new", "old"))
            assert fate(restored, producer, number) == found
