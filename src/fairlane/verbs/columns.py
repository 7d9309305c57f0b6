"""Batches as columns: what the stream carries for many plain messages instead of one object for each.

A message is *plain* here if it has a payload and perhaps a fairness key, and nothing else. A batch of such messages is
a list of keys, a column of sizes and one blob with all payloads, which costs a fraction of as many objects to encode,
decode and check. Each class is a sequence of what it stands for, so code that does not know columns works with the
rows, which are created when they are asked for. Code for which the difference matters asks for the type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, TypeVar, overload

from fairlane.model.ids import MessageIds, ids_under
from fairlane.model.message import (
    DeadLetterOrigin,
    Delivery,
    FailedAttempt,
    Key,
    NewMessage,
    PriorityName,
    Receipt,
)
from fairlane.verbs.messages import EnqueueResult

T = TypeVar("T")
COLUMNS_FROM: Final = 4
"""Fewer items cost less as objects."""


class LazyRows(Sequence[T]):
    """A sequence whose items are created when they are asked for."""

    __slots__ = ()

    def row(self, at: int) -> T:
        """Return an item; ``at`` is in the range."""
        raise NotImplementedError

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        """Return an item, or some of them as a list."""
        if isinstance(at, slice):
            return [self.row(row) for row in range(*at.indices(len(self)))]
        count = len(self)
        if not -count <= at < count:
            raise IndexError(f"Row {at} of {count}.")
        return self.row(at % count)

    def __iter__(self) -> Iterator[T]:
        """Create every item."""
        return map(self.row, range(len(self)))


class Payloads(LazyRows[bytes]):
    """Payloads that lie one after the other in one blob.

    Attributes:
        blob: all of them.
        sizes: how many bytes each of them has.
    """

    __slots__ = ("_begins", "blob", "sizes")

    def __init__(self, blob: memoryview, sizes: Sequence[int]) -> None:
        self.blob = blob
        self.sizes = sizes
        self._begins: list[int] | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    def begins(self) -> list[int]:
        """Return where each payload begins, and where the last one ends."""
        if self._begins is None:
            self._begins = [*accumulate(self.sizes, initial=0)]
        return self._begins

    def row(self, at: int) -> bytes:
        """Return a payload."""
        begins = self.begins()
        return bytes(self.blob[begins[at] : begins[at + 1]])


class MessageColumns(LazyRows[NewMessage]):
    """New messages with payloads and fairness keys, and nothing else.

    Attributes:
        keys: the fairness key of each; None for the default.
        payloads: their payloads.
    """

    __slots__ = ("keys", "payloads")

    def __init__(self, keys: Sequence[str | None], payloads: Payloads) -> None:
        self.keys = keys
        self.payloads = payloads

    def __len__(self) -> int:
        return len(self.keys)

    def row(self, at: int) -> NewMessage:
        """Return a message."""
        return NewMessage(payload=self.payloads.row(at), fairness_key=self.keys[at])


class EnqueuedIds(LazyRows[EnqueueResult]):
    """The results of an enqueue all of whose messages were taken in: their numbers follow each other.

    Attributes:
        journal: the last 64 bits of their ids.
        first: the number of the first.
        size: how many they are.
    """

    __slots__ = ("first", "journal", "size")

    def __init__(self, journal: int, first: int, size: int) -> None:
        self.journal = journal
        self.first = first
        self.size = size

    def __len__(self) -> int:
        return self.size

    def ids(self) -> list[str]:
        """Return the id of each message."""
        return ids_under(self.journal).ids_of(range(self.first, self.first + self.size))

    def row(self, at: int) -> EnqueueResult:
        """Return the result of a message."""
        message_id = ids_under(self.journal).id_of(self.first + at)
        return EnqueueResult(id=message_id, correlation_id=message_id)


class ReceiptColumns(LazyRows[Receipt]):
    """Receipts without costs and results.

    Attributes:
        journal: the last 64 bits of the ids of the messages.
        numbers: the number of each message.
        tokens: the fencing token of each lease.
    """

    __slots__ = ("journal", "numbers", "tokens")

    def __init__(self, journal: int, numbers: Sequence[int], tokens: Sequence[int]) -> None:
        self.journal = journal
        self.numbers = numbers
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.numbers)

    def row(self, at: int) -> Receipt:
        """Return a receipt."""
        message_id = ids_under(self.journal).id_of(self.numbers[at])
        return Receipt(message_id, self.tokens[at])


class DeliveryRow:
    """A leased message as a row of its batch, with the fields of a ``Delivery``.

    Attributes:
        columns: the batch.
        at: which row it is.
    """

    __slots__ = ("_id", "at", "columns")

    cost: Final = 1
    priority: Final[PriorityName] = "normal"
    failures: Final = 0
    state: Final[bytes | None] = None
    state_etag: Final[str | None] = None
    errors: Final[tuple[FailedAttempt, ...]] = ()
    dead: Final[DeadLetterOrigin | None] = None
    deadline_ms: Final[int | None] = None
    time_left_ms: Final[int | None] = None
    payload_size: Final[int | None] = None
    order_key: Final[str | None] = None

    def __init__(self, columns: DeliveryColumns, at: int) -> None:
        self.columns = columns
        self.at = at
        self._id: str | None = None

    @property
    def number(self) -> int:
        """The number of the message."""
        return self.columns.numbers[self.at]

    @property
    def id(self) -> str:
        """The id of the message."""
        if self._id is None:
            self._id = self.columns.message_ids().id_of(self.columns.numbers[self.at])
        return self._id

    @property
    def correlation_id(self) -> str:
        """The id: the message was given no correlation id."""
        return self.id

    @property
    def queue(self) -> str:
        """The queue it was leased from."""
        return self.columns.queue

    @property
    def token(self) -> int:
        """The fencing token of the lease."""
        return self.columns.token + self.at

    @property
    def payload(self) -> bytes:
        """The bytes that the producer sent."""
        return self.columns.payloads[self.at]

    @property
    def headers(self) -> dict[str, str]:
        """No headers."""
        return {}

    @property
    def fairness_key(self) -> Key:
        """The fairness key."""
        return self.columns.keys[self.at]

    @property
    def attempt(self) -> int:
        """The number of this delivery, from 1."""
        return self.columns.attempts[self.at]

    @property
    def expires_ms(self) -> int:
        """When the lease ends."""
        return self.columns.expires_ms

    @property
    def enqueued_ms(self) -> int:
        """When the message was enqueued."""
        return self.columns.enqueued_ms[self.at]

    def delivery(self) -> Delivery:
        """Return the same as an object of its own."""
        message_id = self.id
        return Delivery(
            id=message_id,
            queue=self.queue,
            token=self.token,
            payload=self.payload,
            headers={},
            fairness_key=self.fairness_key,
            attempt=self.attempt,
            expires_ms=self.expires_ms,
            enqueued_ms=self.enqueued_ms,
            correlation_id=message_id,
        )


class DeliveryColumns(LazyRows[Any]):
    """Leased messages that have nothing but what plain messages have. Its items are ``DeliveryRow``.

    Attributes:
        queue: where they were leased.
        journal: the last 64 bits of their ids.
        numbers: the number of each.
        token: the fencing token of the first; those of the others follow.
        expires_ms: when the leases end.
        keys, attempts, enqueued_ms, payloads: see ``Delivery``.
    """

    __slots__ = (
        "_ids",
        "attempts",
        "enqueued_ms",
        "expires_ms",
        "journal",
        "keys",
        "numbers",
        "payloads",
        "queue",
        "token",
    )

    def __init__(
        self,
        queue: str,
        *,
        journal: int,
        numbers: Sequence[int],
        token: int,
        expires_ms: int,
        keys: Sequence[Key],
        attempts: Sequence[int],
        enqueued_ms: Sequence[int],
        payloads: Sequence[bytes],
    ) -> None:
        self.queue = queue
        self.journal = journal
        self.numbers = numbers
        self.token = token
        self.expires_ms = expires_ms
        self.keys = keys
        self.attempts = attempts
        self.enqueued_ms = enqueued_ms
        self.payloads = payloads
        self._ids: MessageIds | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def payload_bytes(self) -> int:
        """How many bytes all payloads have together."""
        return sum(map(len, self.payloads))

    def ids(self) -> list[str]:
        """Return the id of each message."""
        return self.message_ids().ids_of(self.numbers)

    def message_ids(self) -> MessageIds:
        """Return what knows the ids of these messages."""
        if self._ids is None:
            self._ids = ids_under(self.journal)
        return self._ids

    def row(self, at: int) -> DeliveryRow:
        """Return a leased message."""
        return DeliveryRow(self, at)


_NAMES: Final = {str, type(None)}
_OTHERS: Final = tuple(name for name in NewMessage.__struct_fields__ if name not in {"payload", "fairness_key"})
_others = attrgetter(*_OTHERS)
_NONE_SET: Final = _others(NewMessage())


def are_plain(messages: Sequence[NewMessage]) -> bool:
    """Return whether messages have nothing but payloads and fairness keys that are plain names."""
    for message in messages:
        if _others(message) != _NONE_SET or type(message.payload) is not bytes:
            return False
    return {type(message.fairness_key) for message in messages} <= _NAMES


def receipt_columns(leased: Sequence[object]) -> ReceiptColumns | None:
    """Return the receipts of leased messages as columns, if all of them are rows of one batch."""
    if not isinstance(leased, (list, tuple)) or len(leased) < COLUMNS_FROM:
        return None
    rows: list[Any] = [getattr(each, "source", None) for each in leased]
    if set(map(type, rows)) != {DeliveryRow}:
        return None
    columns: DeliveryColumns = rows[0].columns
    if any(row.columns is not columns for row in rows):
        return None
    places, numbers, first = [row.at for row in rows], columns.numbers, columns.token
    return ReceiptColumns(columns.journal, [numbers[at] for at in places], [first + at for at in places])
