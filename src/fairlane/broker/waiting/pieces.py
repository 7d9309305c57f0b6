"""Pieces of uploads that wait for a commit, so that large payloads do not delay small requests.

A cycle stores about ``cycle_bytes_max`` of pieces and leaves the rest for the next ones. A cycle that has other
requests to commit stores none, up to three times in a row: its callers wait for a short commit, and uploads still go on
however busy the broker is. Callers take turns, however many pieces each of them has sent. A caller that has too many
waiting is refused: its client sends a piece only when earlier ones are stored, and one that doesn't would fill memory.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, cast

from fairlane.broker.requests import Call
from fairlane.core.commands import DeletePieces, Given
from fairlane.errors import TooManyWaiters
from fairlane.model.limits import PIECES_WAITING_MAX
from fairlane.verbs.uploads import UploadPiece
from fairlane.verbs.verb import Reply

if TYPE_CHECKING:
    from fairlane.broker.cycle import Cycle, Executor

_RETRY_MS: Final = 100
_GIVEN_WAY_MAX: Final = 3
_DELETED_MAX: Final = 16
"""Pieces that one cycle deletes: to delete a gigabyte at once would delay everyone else."""


def take_piece(executor: Executor, call: Call, cycle: Cycle) -> None:
    """Add a piece to those that wait; this cycle or a later one stores it."""
    if (refusal := executor.pieces.add(call)) is not None:
        cycle.answer(call.reply, refusal)


def tend_pieces(executor: Executor, cycle: Cycle, *, bytes_max: int) -> None:
    """Delete some of the pieces that are no longer needed, and store about ``bytes_max`` of those that wait."""
    if cycle.records and executor.pieces.gives_way():
        return
    discarded = executor.ledger.discarded
    if discarded.entries:
        executor.execute(DeletePieces(count=_DELETED_MAX), cycle)
        cycle.frees_space = not discarded.entries
    for call in executor.pieces.take(bytes_max):
        cycle.current = call
        cycle.answer(call.reply, executor.execute(call.request, cycle, Given(by=call.by)))
    cycle.current = None


class WaitingPieces:
    """The pieces that wait, by caller.

    Attributes:
        lines: the pieces of each caller in order; the caller whose turn is next is in front.
    """

    def __init__(self) -> None:
        self.lines: OrderedDict[str, deque[Call]] = OrderedDict()
        self._given_way = 0

    def gives_way(self) -> bool:
        """Return whether the pieces are left to a later cycle, because this one has other requests."""
        self._given_way = (self._given_way + 1) % (_GIVEN_WAY_MAX + 1)
        return self._given_way > 0

    def add(self, call: Call) -> TooManyWaiters | None:
        """Add a piece behind those of its caller, or return why it is refused."""
        line = self.lines.setdefault(call.by or "", deque())
        if len(line) >= PIECES_WAITING_MAX:
            cause = f"{len(line)} pieces of this caller are waiting to be stored already (PIECES_WAITING_MAX)."
            return TooManyWaiters(cause, retry_after_ms=_RETRY_MS)
        line.append(call)
        return None

    def take(self, bytes_max: int) -> list[Call]:
        """Remove the pieces that one cycle stores, in turns of the callers: at least one, and about ``bytes_max``."""
        taken: list[Call] = []
        size = 0
        while self.lines and (not taken or size < bytes_max):
            caller, line = self.lines.popitem(last=False)
            call = line.popleft()
            if line:
                self.lines[caller] = line
            if call.reply is None or not call.reply.done():
                taken.append(call)
                size += len(cast("UploadPiece", call.request).data)
        return taken

    def dismiss(self) -> list[Reply | None]:
        """Forget all pieces that wait, and return their replies."""
        waiting = [call.reply for line in self.lines.values() for call in line]
        self.lines.clear()
        return waiting
