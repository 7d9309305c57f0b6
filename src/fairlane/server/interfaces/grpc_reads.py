"""Read the messages of gRPC calls, a bounded number at a time.

gRPC collects a whole message, up to ``body_bytes_max``, before anyone sees how large it is. So the number of messages
that are being collected is bounded: for each caller, so that none can use up what all others have, and in total. Calls
beyond that wait for their turn, while HTTP/2 holds back what their clients send. A message that does not arrive in time
ends its call, so a client that stalls does not keep its turn.

A call that waits is one of the calls that gRPC serves at a time, so a caller may only have a limited number of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fairlane.errors import InvalidArgument, TooManyWaiters, WaitTimedOut

if TYPE_CHECKING:
    import grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
READS_MAX: Final = 32
CALLER_READS_MAX: Final = 4
READ_S_MAX: Final = 30.0
_RETRY_AFTER_MS: Final = 1_000


class _CallerTurns(asyncio.Semaphore):
    """The turns of one caller.

    Attributes:
        calls: calls that have a turn or wait for one.
    """

    calls = 0


class MessageReads:
    """Turns to collect a message."""

    def __init__(
        self,
        *,
        calls_max: int,
        reads_max: int = READS_MAX,
        caller_reads_max: int = CALLER_READS_MAX,
        seconds_max: float = READ_S_MAX,
    ) -> None:
        """Collect nothing yet.

        Args:
            calls_max: calls of one caller whose message has not arrived; further ones are refused.
            reads_max: messages that are being collected at a time.
            caller_reads_max: of these, messages of one caller.
            seconds_max: how long a message may take to arrive once it has its turn.
        """
        self._calls_max = calls_max
        self._caller_reads_max = caller_reads_max
        self._seconds_max = seconds_max
        self._turns = asyncio.Semaphore(reads_max)
        self._turns_of: dict[str, _CallerTurns] = {}

    async def read(self, context: Context, caller: str) -> bytes:
        """Return the next message of a call, which must send one.

        Raises:
            InvalidArgument: the client sent none.
            WaitTimedOut: it did not arrive in time.
            TooManyWaiters: the caller has too many calls without a message.
        """
        own = self._turns_of.get(caller)
        if own is None:
            own = self._turns_of[caller] = _CallerTurns(self._caller_reads_max)
        elif own.calls >= self._calls_max:
            cause = (
                f"{own.calls} calls of this caller have sent no message; at most {self._calls_max} may wait for one."
            )
            raise TooManyWaiters(cause, retry_after_ms=_RETRY_AFTER_MS)
        own.calls += 1
        try:
            async with own, self._turns:
                data = await self._arrived(context)
        finally:
            own.calls -= 1
            if not own.calls:
                del self._turns_of[caller]
        if not isinstance(data, bytes):
            raise InvalidArgument("The call has no message.")
        return data

    async def _arrived(self, context: Context) -> object:
        try:
            async with asyncio.timeout(self._seconds_max):
                return await context.read()
        except TimeoutError as error:
            cause = f"The request did not arrive within {self._seconds_max:g} seconds."
            raise WaitTimedOut(cause, retry_after_ms=None) from error
