"""How much of a store can be read: its journal, and the bodies of messages, results and uploads that are kept.

A broker refuses a store that it can't read completely. This module finds out how much of it can be read, for checks and
repairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fairlane.broker.engine.recovery import fold_page
from fairlane.core.ledger import Ledger, Message
from fairlane.errors import FairlaneError
from fairlane.journal import codec
from fairlane.ports.store import Extent, Store

Progress = Callable[[int, int], None]
"""Called with how much was done, and how much there is."""
_SLICE = 64


@dataclass(frozen=True, slots=True)
class Inspection:
    """How much of a store can be read.

    Attributes:
        extent: what the store says that it holds.
        end: the journal can be read and folded up to, but excluding, this sequence.
        fault: why not further; empty if it can be read to its end.
        history_fault: why the journal before the base can't be read; only readers of the journal need that.
        messages: how many messages are alive at that end.
        bodies: the numbers of all bodies that are needed and can be read.
        unreadable: the messages, results and uploads whose bodies can't be read, as a queue and an id.
    """

    extent: Extent
    end: int
    fault: str
    history_fault: str
    messages: int
    bodies: tuple[int, ...]
    unreadable: tuple[tuple[str, str], ...]

    @property
    def is_whole(self) -> bool:
        """Whether everything can be read."""
        return not (self.fault or self.history_fault or self.unreadable)


def inspect_store(store: Store, extent: Extent, progress: Progress = lambda _done, _all: None) -> Inspection:
    """Read a store that is open, and return how much of it can be read."""
    ledger, end, fault = _fold(store, extent, extent.next_sequence, progress)
    if fault:  # the ledger may hold a part of the page that failed
        ledger, _, _ = _fold(store, extent, end, progress)
    needed = needed_bodies(ledger)
    readable = _readable(store, sorted(needed), progress)
    # A message may need several bodies: its own, its workflow state, and the pieces of its payload.
    unreadable = {owner for number in needed.keys() - readable for owner in needed[number]}
    return Inspection(
        extent=extent,
        end=end,
        fault=fault,
        history_fault=_history_fault(store, extent),
        messages=ledger.messages,
        bodies=tuple(sorted(readable)),
        unreadable=tuple(sorted(unreadable)),
    )


def _fold(store: Store, extent: Extent, stop: int, progress: Progress) -> tuple[Ledger, int, str]:
    """Return the ledger up to a sequence, where it ends, and why it ends earlier than that."""
    ledger = Ledger(sequence=extent.base)
    end = extent.base
    try:
        for stored in store.pages(extent.base - 1):
            if stored.sequence >= stop:
                break
            fold_page(ledger, stored.page)
            end = stored.next_sequence
            progress(end - extent.base, stop - extent.base)
    except (FairlaneError, KeyError, ValueError, IndexError) as error:
        cause = error.cause if isinstance(error, FairlaneError) else repr(error)
        return ledger, end, f"The journal can't be read after sequence {end - 1}: {cause}"
    if end < stop:
        return ledger, end, f"The journal ends before sequence {end}, not {stop}."
    return ledger, end, ""


def _history_fault(store: Store, extent: Extent) -> str:
    if extent.first >= extent.base:
        return ""
    try:
        for stored in store.pages(extent.first - 1):
            if stored.sequence >= extent.base:
                break
            codec.decode(stored.page)
    except (FairlaneError, ValueError) as error:
        return str(error.cause if isinstance(error, FairlaneError) else error)
    return ""


def needed_bodies(ledger: Ledger) -> dict[int, list[tuple[str, str]]]:
    """Return the numbers of all bodies that are needed, each with the queues and ids of what it belongs to.

    Discarded pieces are not needed: they are about to be deleted.
    """
    needed: dict[int, list[tuple[str, str]]] = {}
    for number, queue, id_ in (*_of_messages(ledger), *_of_results(ledger), *_of_uploads(ledger)):
        needed.setdefault(number, []).append((queue, id_))
    return needed


def _of_messages(ledger: Ledger) -> Iterator[tuple[int, str, str]]:
    for message in _messages(ledger):
        yield message.body_number, message.queue.name, message.id
        if message.after is not None and message.after.state is not None:
            yield message.after.state, message.queue.name, message.id
        for number in message.pieces.numbers if message.pieces is not None else ():
            yield number, message.queue.name, message.id


def _of_results(ledger: Ledger) -> Iterator[tuple[int, str, str]]:
    for finished in ledger.finished.known.values():
        if finished.body:
            yield finished.body, finished.queue, ledger.ids.id_of(finished.number)


def _of_uploads(ledger: Ledger) -> Iterator[tuple[int, str, str]]:
    for queue in ledger.queues.values():
        for upload in queue.uploads.values():
            for number in upload.stored():
                yield number, queue.name, ledger.ids.id_of(upload.number)


def _messages(ledger: Ledger) -> Iterator[Message]:
    for queue in ledger.queues.values():
        yield from queue.messages.values()
        yield from queue.staged.values()


def _readable(store: Store, numbers: list[int], progress: Progress) -> set[int]:
    found: set[int] = set()
    for at in range(0, len(numbers), _SLICE):
        some = numbers[at : at + _SLICE]
        try:
            bodies = store.bodies(some)
        except FairlaneError:  # one of them can't be read; which?
            bodies = [_body(store, number) for number in some]
        found.update(number for number, body in zip(some, bodies, strict=True) if body is not None)
        progress(at + len(some), len(numbers))
    return found


def _body(store: Store, number: int) -> bytes | None:
    try:
        return store.bodies([number])[0]
    except FairlaneError:
        return None
