"""Pieces of payloads that come from a store whose reads are requests to a server.

Such a read takes many milliseconds, and the thread that runs the cycles serves everyone. So a request for a piece has
it fetched in another thread, and waits. When the piece is there, the request is asked again from the beginning, and
sees whether its lease is still valid. The next pieces are fetched at the same time, since payloads are read in order.

A piece that is not found may just have been deleted with its message. So that request is asked again, too, and if its
message is still there, the store is read in the cycle, which has the final answer.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from fairlane.broker.requests import Read
from fairlane.core.states.uploads import Pieces
from fairlane.errors import FairlaneError, StoreCorrupt, StoreFailed
from fairlane.ports.store import RemoteStore, Store
from fairlane.verbs.verb import Reply

_AHEAD: Final = 3
_AHEAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""What is fetched ahead takes no more memory than that, for all payloads together."""


@dataclass(slots=True, frozen=True)
class Awaited:
    """Stands for an answer that needs a piece which is being fetched."""

    number: int


@dataclass(slots=True, eq=False)
class _Fetch:
    """A piece that is fetched or was fetched.

    Attributes:
        data: the piece; None if it was not found.
        reads: the requests that wait for it.
    """

    is_done: bool = False
    data: bytes | None = None
    reads: list[Read] = field(default_factory=list)


class Fetches:
    """The pieces that are being fetched, and those that are there and not taken yet.

    Only ``loaded`` is changed by other threads.

    Attributes:
        is_remote: whether pieces are to be fetched.
        pieces: the pieces by number, those that were asked for first in front. Most of the time there are none.
        run: runs a function, which takes long, in another thread, and then a cycle. A front end sets it.
        loaded: the number of each piece that has come, and the piece, None, or why it could not be read.
    """

    def __init__(self, store: Store) -> None:
        self.is_remote = isinstance(store, RemoteStore)
        self._fetch = store.fetch if isinstance(store, RemoteStore) else store.bodies
        self.pieces: OrderedDict[int, _Fetch] = OrderedDict()
        self.run: Callable[[Callable[[], None]], None] = lambda load: load()
        self.loaded: deque[tuple[int, bytes | FairlaneError | None]] = deque()

    def piece(self, pieces: Pieces, offset: int, *, reads_on: bool) -> bytes | Awaited | None:
        """Return the piece that holds the byte at an offset; None if it is not found, or after the end.

        With ``reads_on`` those after it are fetched as well.
        """
        numbers = pieces.at(offset, count=1 + _AHEAD if reads_on else 1)
        if not numbers:
            return None
        known = self.pieces.get(numbers[0])
        if known is None:
            self._start(numbers[0])
        elif known.is_done:
            del self.pieces[numbers[0]]
        for number in numbers[1:]:
            if number not in self.pieces and self._has_space(pieces.piece_bytes):
                self._start(number)
        return known.data if known is not None and known.is_done else Awaited(numbers[0])

    def wait(self, awaited: Awaited, read: Read) -> None:
        """Ask a request again when its piece is there."""
        self.pieces[awaited.number].reads.append(read)

    def _start(self, number: int) -> None:
        self.pieces[number] = _Fetch()
        self.run(partial(self._load, number))

    def _load(self, number: int) -> None:
        """Fetch a piece; in any thread."""
        outcome: bytes | FairlaneError | None = StoreFailed("A piece of a payload could not be read.")
        try:
            (outcome,) = self._fetch([number])
        except StoreCorrupt:
            outcome = None
        except FairlaneError as error:
            outcome = error
        finally:
            self.loaded.append((number, outcome))

    def _has_space(self, piece_bytes: int) -> bool:
        """Return whether one more piece may be fetched ahead, at the cost of the oldest that was not taken."""
        if (len(self.pieces) + 1) * piece_bytes <= _AHEAD_BYTES_MAX:
            return True
        untaken = next((number for number, known in self.pieces.items() if known.is_done), None)
        if untaken is not None:
            del self.pieces[untaken]
        return untaken is not None

    def settle(self) -> list[Read]:
        """Note what has come, and return the requests to ask again."""
        ready: list[Read] = []
        while self.loaded:
            number, outcome = self.loaded.popleft()
            known = self.pieces.get(number)
            if known is None:
                continue
            reads, known.reads = [read for read in known.reads if not read.reply.done()], []
            if isinstance(outcome, FairlaneError):
                del self.pieces[number]
                for read in reads:
                    read.reply.set_exception(outcome)
            else:
                known.is_done, known.data = True, outcome
                ready += reads
        return ready

    def forget(self, numbers: Iterable[int]) -> list[Read]:
        """Forget pieces that were deleted, and return the requests to ask again: their messages are gone."""
        gone = [known for number in numbers if (known := self.pieces.pop(number, None)) is not None]
        return [read for known in gone for read in known.reads]

    def dismiss(self) -> list[Reply]:
        """Forget everything, and return the replies of the requests that wait."""
        waiting = [read.reply for known in self.pieces.values() for read in known.reads]
        self.pieces.clear()
        return waiting
