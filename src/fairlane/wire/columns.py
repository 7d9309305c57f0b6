"""Columns on the stream: batches of plain messages as a few fields instead of one object for each message.

With the subprotocol ``fairlane.v2``, columns may stand wherever the requests and answers of the hot verbs have a list:
``messages`` of an enqueue and its ``results``, ``deliveries`` of a lease and of a channel, and ``receipts`` of an ack.
A decoder tells the two apart by their types: a list is an array, and columns are a map. Numbers in a column are
little-endian, of four or eight bytes.

``model`` knows nothing of this, and neither does the broker: what it gets and gives are the sequences of
``verbs.columns``. The limits are those of lists, and a decoder refuses a longer column before it creates anything.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias, cast

import msgspec

from fairlane.errors import InvalidArgument
from fairlane.model.bounds import Batch, Numbers
from fairlane.model.ids import NUMBER_END
from fairlane.model.limits import BATCH_MAX
from fairlane.model.message import Delivery, Key, NewMessage, Receipt
from fairlane.verbs.columns import (
    COLUMNS_FROM,
    DeliveryColumns,
    EnqueuedIds,
    MessageColumns,
    Payloads,
    ReceiptColumns,
    are_plain,
)
from fairlane.verbs.leases import Ack
from fairlane.verbs.messages import ENQUEUE_WAIT_MS, Enqueue, EnqueueResult
from fairlane.verbs.verb import Shape

_SIZE, _NUMBER = 4, 8
_JOURNAL_END: Final = 1 << 64
_WHOLE_BLOB_MAX: Final = 1 << 20
"""Of a larger blob each payload is copied at once: a message that is kept would keep all of them in memory."""
Sizes: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=_SIZE * BATCH_MAX)]
"""Numbers below 2³²."""
Wholes: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=_NUMBER * BATCH_MAX)]
"""Numbers below 2⁶⁴."""


class NewColumns(Shape, frozen=True, kw_only=True):
    """New messages with payloads and fairness keys, and nothing else.

    Attributes:
        keys: the fairness key of each; null for the default.
        sizes: the size of each payload.
        payloads: the payloads, one after the other.
    """

    keys: Batch[str | None]
    sizes: Sizes
    payloads: memoryview


class LeasedColumns(Shape, frozen=True, kw_only=True):
    """Leased messages; see ``DeliveryColumns``."""

    queue: str
    journal: int
    numbers: Wholes
    token: int
    expires_ms: int
    keys: Batch[Key]
    attempts: Sizes
    enqueued_ms: Wholes
    sizes: Sizes
    payloads: memoryview


class LeaseColumns(Shape, frozen=True, kw_only=True):
    """The receipts of leased messages; see ``ReceiptColumns``."""

    journal: int
    numbers: Wholes
    tokens: Wholes


class NumberedColumns(Shape, frozen=True, kw_only=True):
    """The ids of new messages; see ``EnqueuedIds``."""

    journal: int
    first: int
    count: int


# ------------------------------------------------------------------------------------------------- requests and answers


class EnqueueEither(Shape, frozen=True, kw_only=True):
    """An ``Enqueue`` with messages as a list or as columns."""

    queue: str
    messages: Batch[NewMessage] | NewColumns
    wait_ms: int = ENQUEUE_WAIT_MS
    producer: str | None = None
    numbers: Numbers = ()


class AckEither(Shape, frozen=True, kw_only=True):
    """An ``Ack`` with receipts as a list or as columns."""

    queue: str
    receipts: Batch[Receipt] | LeaseColumns


class EnqueuedEither(msgspec.Struct):
    """The answer to an enqueue, with results as a list or as columns."""

    results: list[EnqueueResult] | NumberedColumns


class LeasedEither(msgspec.Struct):
    """The answer to a lease, with deliveries as a list or as columns."""

    deliveries: list[Delivery] | LeasedColumns


def enqueue_of(request: EnqueueEither) -> Enqueue:
    """Return the request of a client. Raises InvalidArgument if the columns don't fit together."""
    messages: Any = request.messages
    if type(messages) is NewColumns:
        messages = _messages_of(messages)
    return Enqueue(
        queue=request.queue,
        messages=messages,
        wait_ms=request.wait_ms,
        producer=request.producer,
        numbers=request.numbers,
    )


def _messages_of(columns: NewColumns) -> MessageColumns:
    sizes = _numbers(columns.sizes, _SIZE, "messages.sizes")
    if len(sizes) != len(columns.keys) or sum(sizes) != len(columns.payloads):
        raise InvalidArgument(
            f"Invalid enqueue request: messages has {len(columns.keys)} keys, {len(sizes)} sizes that add up to "
            f"{sum(sizes)} bytes, and {len(columns.payloads)} bytes of payloads. Send one key and one size for each."
        )
    return MessageColumns(columns.keys, Payloads(columns.payloads, sizes))


def ack_of(request: AckEither) -> Ack:
    """Return the request of a client. Raises InvalidArgument if the columns don't fit together."""
    receipts: Any = request.receipts
    if type(receipts) is LeaseColumns:
        receipts = _receipts_of(receipts)
    return Ack(queue=request.queue, receipts=receipts)


def _receipts_of(columns: LeaseColumns) -> ReceiptColumns:
    numbers = _numbers(columns.numbers, _NUMBER, "receipts.numbers")
    tokens = _numbers(columns.tokens, _NUMBER, "receipts.tokens")
    if len(numbers) != len(tokens):
        raise InvalidArgument(
            f"Invalid ack request: receipts has {len(numbers)} numbers and {len(tokens)} tokens. Send one of each."
        )
    if not 0 <= columns.journal < _JOURNAL_END or max(numbers, default=0) >= NUMBER_END:
        raise InvalidArgument("Invalid ack request: receipts has a number or a journal that no message has.")
    return ReceiptColumns(columns.journal, numbers, tokens)


EITHERS: Final[dict[str, type[Shape]]] = {"enqueue": EnqueueEither, "ack": AckEither}
"""The requests of a stream that knows columns, where they are others than without."""


def given_request(request: Shape) -> Shape:
    """Return the request of a verb for a request that may have columns.

    Raises InvalidArgument if the columns don't fit together.
    """
    if type(request) is EnqueueEither:
        return enqueue_of(request)
    return ack_of(request) if type(request) is AckEither else request


def request_in_columns(request: Shape) -> Shape:
    """Return what to send for a request of a client: columns if all of its items are plain, else the request."""
    if type(request) is Enqueue and len(request.messages) >= COLUMNS_FROM and are_plain(request.messages):
        messages = request.messages
        payloads = [message.payload for message in messages]
        return EnqueueEither(
            queue=request.queue,
            messages=NewColumns(
                keys=cast("list[str | None]", [message.fairness_key for message in messages]),
                sizes=struct.pack(f"<{len(payloads)}I", *map(len, payloads)),
                payloads=memoryview(b"".join(payloads)),
            ),
            wait_ms=request.wait_ms,
            producer=request.producer,
            numbers=request.numbers,
        )
    if type(request) is Ack and isinstance(receipts := _receipts(request), ReceiptColumns):
        return AckEither(
            queue=request.queue,
            receipts=LeaseColumns(
                journal=receipts.journal, numbers=_wholes(receipts.numbers), tokens=_wholes(receipts.tokens)
            ),
        )
    return request


def request_in_rows(request: Shape) -> Shape:
    """Return what to send for a request to a server that does not know columns."""
    if type(request) is Ack and isinstance(_receipts(request), ReceiptColumns):
        return msgspec.structs.replace(request, receipts=list(request.receipts))
    return request


def _receipts(request: Ack) -> Sequence[Receipt]:
    return request.receipts


def results_in(answer: EnqueuedEither) -> list[EnqueueResult]:
    """Return the results of an enqueue. They are ``EnqueuedIds`` if they came as columns."""
    found = answer.results
    if isinstance(found, NumberedColumns):
        return cast("list[EnqueueResult]", EnqueuedIds(found.journal, found.first, found.count))
    return found


def deliveries_in(found: list[Delivery] | LeasedColumns) -> list[Delivery]:
    """Return leased messages. They are ``DeliveryColumns`` if they came as columns, and sliced when they are read."""
    return cast("list[Delivery]", _deliveries_of(found)) if isinstance(found, LeasedColumns) else found


def _deliveries_of(found: LeasedColumns) -> DeliveryColumns:
    count = len(found.keys)
    if not len(found.numbers) == len(found.enqueued_ms) == _NUMBER * count:
        raise msgspec.ValidationError("The columns of leased messages have different lengths.")
    if not len(found.sizes) == len(found.attempts) == _SIZE * count:
        raise msgspec.ValidationError("The columns of leased messages have different lengths.")
    payloads: Sequence[bytes] = Payloads(memoryview(found.payloads), _numbers(found.sizes, _SIZE, "sizes"))
    return DeliveryColumns(
        found.queue,
        journal=found.journal,
        numbers=_numbers(found.numbers, _NUMBER, "numbers"),
        token=found.token,
        expires_ms=found.expires_ms,
        keys=found.keys,
        attempts=_numbers(found.attempts, _SIZE, "attempts"),
        enqueued_ms=_numbers(found.enqueued_ms, _NUMBER, "enqueued_ms"),
        payloads=list(payloads) if len(found.payloads) > _WHOLE_BLOB_MAX else payloads,
    )


def encode_columns(found: object) -> object:
    """Return what to encode for columns that an answer holds; the hook of the server's encoder."""
    if isinstance(found, EnqueuedIds):
        return NumberedColumns(journal=found.journal, first=found.first, count=found.size)
    if not isinstance(found, DeliveryColumns):
        raise NotImplementedError(f"An answer holds a {type(found).__name__}.")
    payloads = found.payloads
    return LeasedColumns(
        queue=found.queue,
        journal=found.journal,
        numbers=_wholes(found.numbers),
        token=found.token,
        expires_ms=found.expires_ms,
        keys=list(found.keys),
        attempts=struct.pack(f"<{len(found)}I", *found.attempts),
        enqueued_ms=_wholes(found.enqueued_ms),
        sizes=struct.pack(f"<{len(found)}I", *map(len, payloads)),
        payloads=memoryview(b"".join(payloads)),
    )


def _wholes(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def _numbers(column: bytes, width: int, name: str) -> tuple[int, ...]:
    count, rest = divmod(len(column), width)
    if rest:
        raise InvalidArgument(f"{name} has {len(column)} bytes; a number has {width}.")
    return struct.unpack(f"<{count}{'I' if width == _SIZE else 'Q'}", column)
