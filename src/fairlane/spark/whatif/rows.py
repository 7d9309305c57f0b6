"""Events of messages as arrays: the messages, their stays in queues, and the rows of each."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairlane.model.message import PRIORITY_NAMES, key_of

Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

NEVER: Final = -1
START, LEASE, ACK, RETURN, DEATH, REMOVAL = range(6)
"""The kinds of rows."""
_CODES = {"leased": LEASE, "acked": ACK, "returned": RETURN, "dead": DEATH, "removed": REMOVAL}
_TERMS = ["fairness_key", "cost", "priority", "throttles", "due_ms", "deadline_ms", "weight", "cap", "order_key"]
_JOINT = "\x1f"
_NORMAL = PRIORITY_NAMES.index("normal")


class MessageRows:
    """Events of messages as arrays, in the order of messages and then of sequences."""

    def __init__(self, table: pa.Table, queues: tuple[str, ...], first_ms: int) -> None:
        numbers = _numbers(table["message_id"])
        # The table stays in its own order, and only the columns that are needed are put in this one.
        self._order: Ints = np.lexsort((ints(table["sequence"]), numbers))
        self._table = table
        self.first_ms = first_ms
        self.number = numbers[self._order]
        kind = ints(pc.index_in(table["kind"], pa.array(list(_CODES))), NEVER)[self._order]
        self.code: Ints = np.array([*_CODES.values(), START], dtype=np.int64)[kind]  # -1 is the last: any other kind
        self.code[(self.code == ACK) & self.has_reason(["late"])] = (
            REMOVAL  # an ack after the lease was lost takes out a waiting message
        )
        places = ints(pc.index_in(table["queue"], pa.array(queues, pa.string())), NEVER)
        targets = ints(pc.index_in(table["target"], pa.array(queues, pa.string())), NEVER)
        is_redrive = flags(pc.equal(table["kind"], "redriven"))
        self.queue = np.where(is_redrive, targets, places)[self._order]
        self.sequence = self.ints("sequence")
        self.at_ms = self.ints("at_ms") - first_ms
        self.owner = _codes(table["owner"])[self._order]
        is_dead = flags(pc.equal(table["kind"], "dead"))
        expired = [flags(pc.equal(table[name], "expiry")) for name in ("ended", "reason")]
        self.is_expired = np.where(is_dead, *expired)[self._order]

    def ints(self, name: str, nothing: int = 0) -> Ints:
        """Return a column of whole numbers."""
        return ints(self._table[name], nothing)[self._order]

    def has_reason(self, reasons: list[str]) -> Flags:
        """Return which rows have one of some reasons."""
        return flags(pc.is_in(self._table["reason"], pa.array(reasons)))[self._order]

    def terms(self, rows: Ints) -> dict[str, list[Any]]:
        """Return the terms of some rows."""
        table = self._table.select(_TERMS).take(pa.array(self._order[rows])).combine_chunks()
        priorities = pc.fill_null(pc.index_in(table["priority"], pa.array(PRIORITY_NAMES)), _NORMAL)
        return {
            "key": _paths(table["fairness_key"], key_of),
            "cost": pc.fill_null(table["cost"], 1).to_pylist(),
            "priority": priorities.to_pylist(),
            "throttles": _paths(table["throttles"], tuple),
            "due_ms": pc.subtract(table["due_ms"], self.first_ms).to_pylist(),
            "deadline_ms": pc.subtract(table["deadline_ms"], self.first_ms).to_pylist(),
            "weight": pc.fill_null(table["weight"], 0).to_pylist(),
            "cap": table["cap"].to_pylist(),
            "order_key": table["order_key"].to_pylist(),
        }


class Parts:
    """Which rows begin parts, and to which part each row belongs."""

    def __init__(self, rows: MessageRows) -> None:
        is_start = (rows.code == START) & (rows.queue != NEVER)
        starts = np.flatnonzero(is_start)
        ranks = np.argsort(rows.sequence[starts], kind="stable")
        rank_of = np.empty_like(ranks)
        rank_of[ranks] = np.arange(ranks.size)
        self.start: Ints = starts[ranks]
        self.sequence: Ints = rows.sequence[self.start]
        latest = np.cumsum(is_start) - 1
        has_start = latest >= 0
        if starts.size:
            has_start &= rows.number[starts[np.maximum(latest, 0)]] == rows.number
            part = np.where(has_start, rank_of[np.maximum(latest, 0)], NEVER)
        else:
            part = np.full(rows.number.size, NEVER)
        self.of_row: Ints = part
        self.unknown: Flags = part == NEVER


def _numbers(ids: pa.ChunkedArray) -> Ints:
    """Return the numbers of messages, decoded in one call: an id is eight bytes in hexadecimal."""
    array = pc.fill_null(ids, "0" * 16).combine_chunks()
    array = array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
    data = b"" if not len(array) else bytes(array.buffers()[2])[array.offset * 16 : (array.offset + len(array)) * 16]
    return np.frombuffer(bytes.fromhex(data.decode()), dtype=">u8").astype(np.int64)


def _codes(column: pa.ChunkedArray) -> Ints:
    """Return a number for each text; -1 for null."""
    array = column.combine_chunks()
    array = array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return ints(coded.indices, NEVER)


def ints(column: pa.ChunkedArray | pa.Array, nothing: int = 0) -> Ints:
    """Return a column of whole numbers."""
    filled: Ints = pc.fill_null(column, nothing).to_numpy(zero_copy_only=False).astype(np.int64)
    return filled


def column_of(values: Ints) -> Sequence[int]:
    """Return whole numbers as a column that gives plain integers, and takes a fifth of a list of them."""
    return array("q", np.ascontiguousarray(values, dtype=np.int64).tobytes())


def flags(column: pa.ChunkedArray) -> Flags:
    """Return a column of truth values, null being False."""
    filled: Flags = pc.fill_null(column, pa.scalar(value=False)).to_numpy(zero_copy_only=False).astype(np.bool_)
    return filled


def _paths(column: pa.ChunkedArray, make: Any) -> list[Any]:  # noqa: ANN401 - a key or a tuple of names
    """Return lists of names as values; equal ones are one object."""
    joined = pc.fill_null(pc.binary_join(column, _JOINT), "").combine_chunks()
    joined = joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)
    coded = joined.dictionary_encode()
    values = [make(text.split(_JOINT) if text else []) for text in coded.dictionary.to_pylist()]
    return [values[code] for code in coded.indices.to_pylist()]
