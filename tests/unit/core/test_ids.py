"""Ids of messages and their numbers, one by one and many at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.names import id_of, ids_of, number_of, numbers_of

NUMBERS = st.lists(st.integers(0, 2**64 - 1), max_size=20)


@given(NUMBERS)
def test_many_ids_are_what_each_would_be(numbers: list[int]) -> None:
    """Ids made together are sixteen hexadecimal digits each, in order, and give the numbers back."""
    ids = ids_of(numbers)
    assert ids == [f"{number:016x}" for number in numbers]
    assert list(numbers_of(ids) or ()) == numbers


def test_ids_of_consecutive_numbers_need_no_list() -> None:
    """A range does as well as a list."""
    assert ids_of(range(254, 257)) == ["00000000000000fe", "00000000000000ff", "0000000000000100"]
    assert ids_of(range(5, 5)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "00000000000000f",
        "00000000000000fff",
        "00000000000000fg",
        "0000000 000000ff",
        " 00000000000000f",
        "00000000000000-1",
        "\uff10000000000000001",
        7,
        None,
        b"00000000000000ff",
    ],
)
def test_what_is_no_id_spoils_the_short_way_for_all(wrong: object) -> None:
    """Among many ids one that is none is noticed, wherever it stands, and alone it has no number."""
    good = id_of(1)
    for ids in ([wrong], [wrong, good], [good, wrong, good], [wrong, wrong]):
        assert numbers_of(ids) is None  # type: ignore[arg-type] # that is the point
    assert number_of(wrong) is None


def test_lengths_that_even_out_are_noticed() -> None:
    """An id too short beside one too long is not read as two good ones."""
    assert numbers_of(["00000000000000f", "f0000000000000001"]) is None
