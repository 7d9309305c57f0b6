"""The header by which a message names those before it, whose results it can ask for.

The continuation of a fan-out has it from the broker, and a job of a chain from the worker that forwards it. It is JSON:
a list of runs, each with a queue, the id of the first message and a count. The messages of a run have consecutive
numbers, so ten thousand of them take a line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from fairlane.errors import InvalidArgument
from fairlane.model.ids import ids_under, number_in

BEFORE_HEADER: Final = "fairlane-before"
_SUFFIX_BEGIN: Final = 19
"""Where the part of an id begins that names the journal."""


class Predecessors(msgspec.Struct, frozen=True, array_like=True):
    """Messages of one queue with consecutive numbers."""

    queue: str
    first: str
    count: int = 1


def written(runs: Iterable[Predecessors]) -> str:
    """Return the text of the header."""
    return msgspec.json.encode(list(runs)).decode()


def predecessors_in(header: str) -> list[tuple[str, str]]:
    """Return the messages that a header names, each with its queue and its id.

    Raises:
        InvalidArgument: the header has another form.
    """
    try:
        runs = msgspec.json.decode(header, type=list[Predecessors])
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"The header {BEFORE_HEADER} is {header!r:.60}: {error}.") from error
    return [(run.queue, message_id) for run in runs for message_id in _ids(run)]


def _ids(run: Predecessors) -> list[str]:
    first = number_in(run.first)
    if first is None or run.count == 1:
        return [run.first]
    journal = int(run.first[_SUFFIX_BEGIN:].replace("-", ""), 16)
    return ids_under(journal).ids_of(range(first, first + run.count))
