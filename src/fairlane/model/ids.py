"""Ids of messages: UUIDs that hold the number of a message and name the journal that gave it.

The core knows a message by its number, the sequence of its enqueue in the journal of its group. Others know it by an
id, a UUID of version 8 (RFC 9562), which is made when it is shown and read when it is given, and kept nowhere:

    nnnnnnnn-nnnn-8nnn-jjjj-jjjjjjjjjjjj

``n`` are the 60 bits of the number. They come first, so within a group the order of ids, as text or as bytes, is the
order of enqueues, and an id tells its partition (see ``partitions``). ``j`` are the two bits of the variant and 62
random bits of the journal's id, so an id is unique among all stores, and a store knows the ids of others.

A journal gets another id when its store was restored from a backup. Messages from before keep the ids that they were
given: ``MessageIds`` knows from which number on each journal id counts.

Where only a number is known, as in the journal's events and in the tables, it is written as sixteen hexadecimal
digits. A store accepts that in the place of an id, as the message of its own with this number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from fairlane.errors import InvalidArgument

_LENGTH: Final = 36
_NUMBER_LENGTH: Final = 16
_NUMBER_BYTES: Final = 8
_LOW_BITS: Final = 12
_LOW: Final = tuple(f"8{low:03x}" for low in range(1 << _LOW_BITS))
"""The third group of an id, by the last bits of the number: the version and these bits."""
_LOW_MASK: Final = (1 << _LOW_BITS) - 1
_HIGH_BYTES: Final = 6
NUMBER_END: Final = 1 << 60
"""The end of the numbers that fit into an id."""
_VARIANT: Final = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""The first digit of the fourth group: two bits of the variant, and two bits of the journal's first digit."""


class MessageIds:
    """The ids of the messages of one store.

    Attributes:
        journals: the ids that its journal has had, the latest last, each with the number from which on it counts.
    """

    __slots__ = ("_low", "_since", "_suffix", "journals")

    def __init__(self, journals: Iterable[tuple[int, str]] = ((0, ""),)) -> None:
        self.journals: list[tuple[int, str]] = []
        self.restore(journals)

    def restore(self, journals: Iterable[tuple[int, str]]) -> None:
        """Forget everything but these journal ids. One that is empty stands for a journal without an id."""
        self.journals = list(journals)
        self._since, journal_id = self.journals[-1]
        self._suffix = _suffix(journal_id)
        self._low = int(self._suffix.replace("-", ""), 16)

    def rename(self, since: int, journal_id: str) -> None:
        """Take another journal id for the messages from a number on; for all if there was none yet."""
        before = [known for known in self.journals if known[1]]
        self.restore([*before, (since if before else 0, journal_id)])

    def id_of(self, number: int) -> str:
        """Return the id of a message."""
        suffix = self._suffix if number >= self._since else self._suffix_before(number)
        high = (number >> _LOW_BITS).to_bytes(_HIGH_BYTES).hex()
        return f"{high[:8]}-{high[8:]}-{_LOW[number & _LOW_MASK]}{suffix}"

    def ids_of(self, numbers: Iterable[int]) -> list[str]:
        """Return the ids of many messages, in a fraction of the time of ``id_of``."""
        since, suffix, ids = self._since, self._suffix, []
        prefixes: dict[int, str] = {}  # numbers that come together mostly share all but their last bits
        for number in numbers:
            if number < since:
                ids.append(self.id_of(number))
                continue
            block = number >> _LOW_BITS
            prefix = prefixes.get(block)
            if prefix is None:
                high = block.to_bytes(_HIGH_BYTES).hex()
                prefix = prefixes[block] = f"{high[:8]}-{high[8:]}-"
            ids.append(prefix + _LOW[number & _LOW_MASK] + suffix)
        return ids

    def journal_of(self, numbers: Sequence[int]) -> int | None:
        """Return the last 64 bits of the ids of messages; None if some are of an earlier journal id."""
        return self._low if not numbers or min(numbers) >= self._since else None

    def number_of(self, message_id: object) -> int | None:
        """Return the number of a message from its id; None for an id of another store, and for what is no id."""
        number = number_in(message_id)
        if number is None or not isinstance(message_id, str) or len(message_id) == _NUMBER_LENGTH:
            return number
        return number if self.id_of(number) == message_id.lower() else None

    def numbers_of(self, message_ids: Sequence[str]) -> Sequence[int] | None:
        """Return the numbers of many messages from their ids, or None if one is unusual or invalid; then try
        ``number_of`` for each.
        """
        count = len(message_ids)
        try:
            text = "".join(message_ids)
            if set(map(len, message_ids)) != {_LENGTH} or text[14::_LENGTH] != "8" * count:
                return None
            if not text[8::_LENGTH] == text[13::_LENGTH] == text[18::_LENGTH] == text[23::_LENGTH] == "-" * count:
                return None
            data = bytes.fromhex(text.replace("-", ""))  # unlike int(), it accepts nothing but digits and spaces
            halves = struct.unpack(f">{2 * count}Q", data)
        except (TypeError, ValueError, struct.error):
            return None
        if halves[1::2].count(self._low) != count:
            return None
        numbers = [high >> 16 << _LOW_BITS | high & _LOW_MASK for high in halves[::2]]
        return None if min(numbers) < self._since else numbers

    def _suffix_before(self, number: int) -> str:
        return next(_suffix(known) for since, known in reversed(self.journals) if number >= since or since == 0)


def ids_under(journal: int) -> MessageIds:
    """Return the ids of messages whose last 64 bits are these; see ``MessageIds.journal_of``."""
    return MessageIds(((0, journal.to_bytes(_NUMBER_BYTES).hex()),))


def number_in(message_id: object) -> int | None:
    """Return the number that an id holds, of whatever store, or that sixteen digits say; None for what is no id."""
    if type(message_id) is not str:
        return None
    if len(message_id) == _NUMBER_LENGTH:
        digits = message_id
    elif len(message_id) == _LENGTH and message_id[8] == "-" and message_id[13:15] == "-8":
        digits = f"0{message_id[:8]}{message_id[9:13]}{message_id[15:18]}"
    else:
        return None
    try:
        data = bytes.fromhex(digits)  # unlike int(), it accepts nothing but digits and spaces
    except ValueError:
        return None
    return int.from_bytes(data) if len(data) == _NUMBER_BYTES else None


def is_of_journal(message_id: str, journal_id: str) -> bool:
    """Return whether an id was given by the journal with this id; True for what is only a number."""
    return len(message_id) == _NUMBER_LENGTH or message_id.lower().endswith(_suffix(journal_id))


def message_number(message_id: str) -> str:
    """Return the number of a message from its id, as the journal's events and the tables have it.

    Raises:
        InvalidArgument: it is not the id of a message.
    """
    number = number_in(message_id)
    if number is None:
        raise InvalidArgument(f"{message_id!r:.60} is not the id of a message.")
    return number_text(number)


def number_text(number: int) -> str:
    """Return a number as the journal's events, the tables and etags have it: sixteen hexadecimal digits."""
    return number.to_bytes(_NUMBER_BYTES).hex()


def _suffix(journal_id: str) -> str:
    digits = journal_id or "0" * _NUMBER_LENGTH
    return f"-{_VARIANT[digits[0]]}{digits[1:4]}-{digits[4:]}"
