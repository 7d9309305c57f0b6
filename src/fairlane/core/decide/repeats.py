"""Which new messages repeat another: by a dedup id within its window, or by a unique key that is taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from fairlane.core.dedup_ids import remembered
from fairlane.core.ledger import Message, Queue
from fairlane.errors import FairlaneError
from fairlane.model.message import Key, NewMessage
from fairlane.verbs.messages import EnqueueResult


@dataclass(slots=True, eq=False)
class _Names:
    """What the messages of a batch are remembered under, of one kind.

    Attributes:
        names: that of each message, None where it has none.
        holder: finds the number of the earlier message that has a name, if one has.
        first: the row of the first message of the batch that has a name.
    """

    names: Sequence[str | None]
    holder: Callable[[str], int | None]
    first: dict[str, int] = field(default_factory=dict)


def known_messages(
    queue: Queue,
    messages: Sequence[NewMessage],
    keys: Sequence[Key],
    rows: Sequence[int],
    now_ms: int,
    leaving: Sequence[Message] = (),
) -> dict[int, EnqueueResult | int]:
    """Return which messages repeat another: with the result of that one, or with its row if it is in the same batch.

    A message that is leaving the queue in the same commit has given up its unique key.
    """
    dedup_names = _names(keys, [message.dedup_id for message in messages])
    unique_names = _names(keys, [message.unique_key for message in messages])
    if unique_names is None and (dedup_names is None or _are_all_new(dedup_names, queue)):
        return {}
    kinds: list[_Names] = []
    if dedup_names is not None:
        kinds.append(_Names(dedup_names, _dedup_holder(queue, now_ms)))
    if unique_names is not None:
        kinds.append(_Names(unique_names, _unique_holder(queue, leaving)))
    known: dict[int, EnqueueResult | int] = {}
    for at, row in enumerate(rows):
        before = _before(queue, kinds, at, row)
        if before is not None:
            known[at] = before
    return known


def _before(queue: Queue, kinds: Sequence[_Names], at: int, row: int) -> EnqueueResult | int | None:
    """Return what a message of the batch repeats. If it is new, its names are its own from then on."""
    named = [(name, kind) for kind in kinds if (name := kind.names[at]) is not None]
    for name, kind in named:
        number = kind.holder(name)
        if number is not None:
            return _repeated(queue, number)
        if name in kind.first:
            return kind.first[name]
    for name, kind in named:
        kind.first[name] = row
    return None


def _dedup_holder(queue: Queue, now_ms: int) -> Callable[[str], int | None]:
    def holder(name: str) -> int | None:
        number, until_ms = queue.dedups.get(name, (None, 0))
        return number if until_ms > now_ms else None

    return holder


def _unique_holder(queue: Queue, leaving: Sequence[Message]) -> Callable[[str], int | None]:
    left = {message.number for message in leaving}

    def holder(name: str) -> int | None:
        number = queue.uniques.get(name)
        return None if number in left else number

    return holder


def _names(keys: Sequence[Key], ids: Sequence[str | None]) -> Sequence[str | None] | None:
    return None if ids.count(None) == len(ids) else remembered(keys, ids)


def _repeated(queue: Queue, number: int) -> EnqueueResult:
    """Return the result of a message that was enqueued before. It may have been acknowledged since."""
    message_id, message = queue.ids.id_of(number), queue.messages.get(number)
    correlation_id = None if message is None else message.correlation_id or message_id
    return EnqueueResult(id=message_id, correlation_id=correlation_id, is_repeat=True)


def repeating(result: EnqueueResult | FairlaneError) -> EnqueueResult | FairlaneError:
    """Return the result of a message that repeats one of the same batch: that one's, or its refusal."""
    return result if isinstance(result, FairlaneError) else replace(result, is_repeat=True)


def _are_all_new(names: Sequence[str | None], queue: Queue) -> bool:
    """Return whether each message has an id that was never seen, checked for all at once. If False, check each one."""
    ids = set(names)
    return len(ids) == len(names) and None not in ids and queue.dedups.keys().isdisjoint(ids)
