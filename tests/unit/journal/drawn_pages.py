"""Pages drawn by Hypothesis message by message, with the events they should give, found without the code under test."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from fairlane.journal.codec import Page
from fairlane.journal.records import Acked, AnyRecord, Baseline, Carried, Enqueued, Leased, Returned, Terms

Row = dict[str, Any]
SMALL = st.integers(1, 1000)
NAMES = st.sampled_from(["acme", "bravo", "céleste", ""])
MESSAGE = st.fixed_dictionaries(
    {
        "number": st.integers(1, 2**63 - 1),
        "key": NAMES | st.tuples(NAMES, NAMES),
        "weight": st.just(0) | SMALL,
        "cost": SMALL,
        "priority": st.integers(0, 2),
        "throttles": st.lists(NAMES, max_size=2),
        "due": st.none() | SMALL,
        "size": SMALL,
        "true_cost": st.none() | SMALL,
        "error": st.sampled_from(["", "it broke"]),
    }
)
MESSAGES = st.lists(MESSAGE, min_size=1, max_size=4)
KINDS = st.sampled_from(["enqueued", "enqueued_plainly", "leased", "acked", "returned", "carried", "baseline"])


def _said(**row: Any) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def _id(number: int) -> str:
    return number.to_bytes(8, "big").hex()


def _enqueued(at: int, some: list[Row], *, is_plain: bool) -> tuple[AnyRecord, list[Row]]:
    terms = Terms([one["key"] for one in some])
    if not is_plain:
        terms.weights = [one["weight"] for one in some]
        terms.costs = [one["cost"] for one in some]
        terms.priorities = [one["priority"] for one in some]
        terms.throttles = [one["throttles"] for one in some]
        terms.due_ms = [one["due"] for one in some]
    rows = [
        _said(
            message_id=_id(at + row),
            fairness_key=[one["key"]] if isinstance(one["key"], str) else list(one["key"]),
            weight=None if is_plain else one["weight"] or None,
            cost=1 if is_plain else one["cost"],
            priority="normal" if is_plain else ["high", "normal", "low"][one["priority"]],
            throttles=[] if is_plain else one["throttles"],
            due_ms=None if is_plain else one["due"],
            size_bytes=one["size"],
            kind="enqueued",
        )
        for row, one in enumerate(some)
    ]
    return Enqueued(at, "orders", [one["size"] for one in some], [0], terms), rows


def _of_messages(kind: str, at: int, some: list[Row]) -> tuple[AnyRecord, list[Row]]:
    numbers = [one["number"] for one in some]
    rows: list[Row] = [{"kind": kind, "message_id": _id(number)} for number in numbers]
    if kind == "leased":
        for row, told in enumerate(rows):
            told |= {"token": at + row, "expires_ms": 77, "owner": "w", "asked": len(numbers)}
        return Leased(at, "orders", numbers, 77, "w"), rows
    if kind == "acked":
        rows = [row | _said(cost=one["true_cost"]) for row, one in zip(rows, some, strict=True)]
        return Acked(at, "orders", numbers, [one["true_cost"] for one in some]), rows
    rows = [
        row | _said(reason="failure", due_ms=one["due"], error=one["error"] or None)
        for row, one in zip(rows, some, strict=True)
    ]
    due_ms = [one["due"] or 0 for one in some]
    return Returned(at, "orders", numbers, "failure", due_ms, [one["error"] for one in some]), rows


def _record(kind: str, at: int, some: list[Row]) -> tuple[AnyRecord, list[Row]]:
    if kind == "carried":
        return Carried(at, [], [], 0), []
    if kind == "baseline":
        return Baseline(at, [], {}, [], [], 1, 0, 0), []
    if kind.startswith("enqueued"):
        return _enqueued(at, some, is_plain=kind == "enqueued_plainly")
    return _of_messages(kind, at, some)


@st.composite
def pages(draw: st.DrawFn) -> tuple[list[Page], list[Row]]:
    """Draw some pages that follow each other, and the events they should give."""
    drawn: list[Page] = []
    events: list[Row] = []
    at = draw(st.integers(1, 2**40))
    for page in range(draw(st.integers(0, 3))):
        records = []
        for kind, some in draw(st.lists(st.tuples(KINDS, MESSAGES), min_size=1, max_size=4)):
            record, rows = _record(kind, at, some)
            records.append(record)
            common = {"at_ms": 1000 + page, "record": at, "queue": "orders"}
            events += [row | common | {"sequence": at + number} for number, row in enumerate(rows)]
            at += len(rows) if rows else 1
        drawn.append(Page(1, 1000 + page, records))
    return drawn, events
