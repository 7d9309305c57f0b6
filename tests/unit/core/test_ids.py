"""Ids of messages: UUIDs in the order of enqueues, each of one store, and the numbers in them."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.errors import InvalidArgument
from fairlane.model.ids import MessageIds, is_of_journal, message_number, number_in, number_text
from tests.kit.ids import numbered

NUMBERS = st.integers(0, 2**53 - 1)
JOURNALS = st.integers(0, 2**64 - 1).map(lambda number: f"{number:016x}")
AA, BB, CC = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "cccccccccccccccc"


@given(NUMBERS, JOURNALS)
def test_an_id_is_a_uuid_of_version_8(number: int, journal_id: str) -> None:
    """Python's own UUIDs agree about text, version and variant, and the number and the journal are in it."""
    text = MessageIds([(0, journal_id)]).id_of(number)
    found = uuid.UUID(text)
    assert (str(found), found.version, found.variant) == (text, 8, uuid.RFC_4122)
    assert found.int >> 80 << 12 | (found.int >> 64 & 0xFFF) == number
    assert found.int & (2**62 - 1) == int(journal_id, 16) & (2**62 - 1)


@given(NUMBERS, NUMBERS, JOURNALS)
def test_the_order_of_ids_is_the_order_of_enqueues(one: int, other: int, journal_id: str) -> None:
    """As text and as bytes."""
    ids = MessageIds([(0, journal_id)])
    first, second = ids.id_of(one), ids.id_of(other)
    assert (first < second) == (one < other) == (uuid.UUID(first).bytes < uuid.UUID(second).bytes)


@given(st.lists(NUMBERS, max_size=20), JOURNALS)
def test_many_ids_are_what_each_would_be(numbers: list[int], journal_id: str) -> None:
    """Ids made together are those made one by one, and both ways lead back to the numbers."""
    ids = MessageIds([(0, journal_id)])
    made = ids.ids_of(numbers)
    assert made == [ids.id_of(number) for number in numbers]
    assert list(ids.numbers_of(made) or ()) == numbers
    assert [ids.number_of(each) for each in made] == [number_in(each) for each in made] == numbers
    assert [numbered(each) for each in made] == numbers


def test_an_id_looks_like_this() -> None:
    """The layout is part of the interface: other programs read the number from it."""
    ids = MessageIds([(0, "0123456789abcdef")])
    assert ids.id_of(5) == "00000000-0000-8005-8123-456789abcdef"
    assert ids.id_of((3 << 47) + 0xABCDEF) == "00180000-0abc-8def-8123-456789abcdef"
    assert ids.ids_of(range(0xFFE, 0x1001)) == [
        "00000000-0000-8ffe-8123-456789abcdef",
        "00000000-0000-8fff-8123-456789abcdef",
        "00000000-0001-8000-8123-456789abcdef",
    ]
    assert ids.ids_of(range(5, 5)) == []


def test_ids_of_other_stores_have_no_number_here() -> None:
    """They may name a message of theirs with the same number; a bare number means the own message."""
    ours, theirs = MessageIds([(0, AA)]), MessageIds([(0, BB)])
    other = theirs.id_of(7)
    assert (ours.number_of(other), number_in(other)) == (None, 7)
    assert ours.numbers_of([ours.id_of(6), other]) is None
    assert ours.number_of(number_text(7)) == ours.number_of(ours.id_of(7).upper()) == 7
    assert [is_of_journal(each, AA) for each in (other, ours.id_of(7), number_text(7))] == [False, True, True]


def test_messages_keep_their_ids_through_a_restore() -> None:
    """A restored journal has another id, which only new messages have in their ids."""
    ids = MessageIds()
    ids.rename(1, AA)
    before = ids.id_of(50)
    ids.rename(100, BB)
    ids.rename(200, CC)
    assert ids.journals == [(0, AA), (100, BB), (200, CC)]
    assert ids.id_of(50) == MessageIds([(0, AA)]).id_of(50) == before
    assert ids.ids_of([99, 100, 250]) == [
        *MessageIds([(0, AA)]).ids_of([99]),
        *MessageIds([(0, BB)]).ids_of([100]),
        *MessageIds([(0, CC)]).ids_of([250]),
    ]
    assert ids.number_of(before) == 50
    assert ids.number_of(MessageIds([(0, AA)]).id_of(150)) is None  # of the store that the backup was made of
    assert ids.numbers_of([MessageIds([(0, CC)]).id_of(50)]) is None
    assert ids.number_of(MessageIds([(0, CC)]).id_of(50)) is None


GOOD = MessageIds([(0, AA)]).id_of(1)


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "00000000000000f", "00000000000000fff", "00000000000000fg", "0000000 000000ff", " 00000000000000f"),
        *("00000000000000-1", "\uff10000000000000001", 7, None, b"00000000000000ff", GOOD.encode()),
        *(GOOD.replace("-8001-", "-7001-"), GOOD[:-1], f"{GOOD}0", GOOD.replace("-", ""), GOOD.replace("-", "0")),
        *(f" {GOOD[1:]}", f"g{GOOD[1:]}", f"{{{GOOD[1:-1]}}}", GOOD.replace("-8001-", "-8 01-")),
    ],
)
def test_what_is_no_id_spoils_the_short_way_for_all(wrong: object) -> None:
    """Among many ids one that is none is noticed, wherever it stands, and alone it has no number."""
    ids = MessageIds([(0, AA)])
    for given_ids in ([wrong], [wrong, GOOD], [GOOD, wrong, GOOD], [wrong, wrong]):
        assert ids.numbers_of(given_ids) is None  # type: ignore[arg-type] # that is the point
    assert ids.number_of(wrong) is None


def test_numbers_are_written_as_sixteen_digits() -> None:
    """As the events of the journal have them."""
    assert [number_text(number) for number in (0, 255, 2**53)] == ["0" * 16, "00000000000000ff", "0020000000000000"]
    assert message_number(GOOD) == message_number("0000000000000001") == "0000000000000001"
    with pytest.raises(InvalidArgument, match="'c-1' is not the id of a message"):
        message_number("c-1")
