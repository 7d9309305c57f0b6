"""Read the messages of gRPC calls, a bounded number at a time.

gRPC collects a whole message, up to ``body_bytes_max``, before anyone sees how large it is. So what is bounded is how
many messages are being collected: of one caller, so that none can use up what all others have, and in all. Calls beyond
that wait for their turn, while HTTP/2 holds back what their clients send. A message that does not arrive in time ends
its call, so a client that stalls does not keep its turn.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakValueDictionary

from fairlane.errors import InvalidArgument, WaitTimedOut

if TYPE_CHECKING:
    import grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
READS_MAX: Final = 32
"""Messages that are being collected at a time."""
CALLER_READS_MAX: Final = 4
"""Messages of one caller that are being collected at a time."""
READ_S_MAX: Final = 30.0
STRANGER: Final = "stranger"
"""All callers of methods that need no API key: one of their messages is collected at a time."""


class MessageReads:
    """Turns to collect a message."""

    def __init__(self, *, seconds_max: float = READ_S_MAX) -> None:
        self._seconds_max = seconds_max
        self._turns = asyncio.Semaphore(READS_MAX)
        self._turns_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def read(self, context: Context, caller: str) -> bytes:
        """Return the next message of a call, which must send one.

        Raises:
            InvalidArgument: the client sent none.
            WaitTimedOut: it did not arrive in time.
        """
        own = self._turns_of.get(caller)
        if own is None:
            turns = CALLER_READS_MAX if caller != STRANGER else 1
            own = self._turns_of[caller] = asyncio.Semaphore(turns)
        async with own, self._turns:
            try:
                async with asyncio.timeout(self._seconds_max):
                    data = await context.read()
            except TimeoutError as error:
                cause = f"The request did not arrive within {self._seconds_max:g} seconds."
                raise WaitTimedOut(cause, retry_after_ms=None) from error
        if not isinstance(data, bytes):
            raise InvalidArgument("The call has no message.")
        return data
