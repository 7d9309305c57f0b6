"""Correlation ids of calls and answers: which one a call has, and which message's an answer echoes."""

from __future__ import annotations

import secrets
from typing import Final

from fairlane.model.limits import CORRELATION_ID_LENGTH_MAX

HEADER: Final = "x-correlation-id"
"""Names a call in its request, and the message or the call in the answer; as an HTTP header or as gRPC metadata."""
REPLACED: Final = "x-correlation-id-replaced"
"""In an answer: why the correlation id of the request was replaced."""
FAULT: Final = f"not 1 to {CORRELATION_ID_LENGTH_MAX} printable ASCII characters"


class CallCorrelation:
    """The correlation id of one call.

    Attributes:
        id: the caller's name for the call, or a random one; once the answer is known, that of the only message that the
            answer is about.
        is_given: whether the caller named the call, well or badly. Its messages then get the id that the call has.
        is_replaced: whether the name was malformed, so that a random one took its place. A bad name for logs must not
            cost the caller its request.
    """

    __slots__ = ("id", "is_given", "is_replaced")

    def __init__(self, given: str | None) -> None:
        self.is_given = given is not None
        self.is_replaced = given is not None and not _is_sound(given)
        self.id = secrets.token_hex(16) if given is None or self.is_replaced else given


def _is_sound(given: str) -> bool:
    return 0 < len(given) <= CORRELATION_ID_LENGTH_MAX and given.isascii() and given.isprintable()


def echoed(request: object, answer: object) -> str | None:
    """Return the correlation id of the only message that an answer is about; None if there is no such message."""
    items = getattr(answer, "results", None) or getattr(answer, "deliveries", None)
    about = items[0] if items is not None and len(items) == 1 else answer
    if not hasattr(about, "correlation_id") or getattr(about, "error", None) is not None:
        return None
    if about.correlation_id is not None:
        return str(about.correlation_id)
    for receipt in (getattr(request, "receipt", None), *getattr(request, "receipts", ())):
        if receipt is not None:
            return str(receipt.id)  # a message without a correlation id of its own has its id
    return next(iter(getattr(request, "ids", ())), None) or getattr(request, "id", None)
