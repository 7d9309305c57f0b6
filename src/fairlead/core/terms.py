"""What the scheduler goes by for each message: the hook's answer, then what is declared, then the producer's wish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from fairlead.core.ledger import Queue
from fairlead.core.sources import Declared, Headers
from fairlead.journal.records import Terms
from fairlead.model.answers import EnqueueAnswer
from fairlead.model.message import PRIORITY_NAMES, Key, NewMessage

DEFAULT_KEY = "default"
_NORMAL = PRIORITY_NAMES.index("normal")
T = TypeVar("T")


def resolve(
    queue: Queue, messages: Sequence[NewMessage], answers: Sequence[EnqueueAnswer | None] | None, now_ms: int
) -> Terms:
    """Return the terms of new messages, as columns."""
    rules = queue.declared
    if answers is None and rules.is_empty and queue.policy.deadline_ms is None:
        return _as_wished(queue, messages, now_ms)
    terms = Terms([], [], [], [], [], [], [], [])
    for at, message in enumerate(messages):
        _append(terms, _one(queue, rules, message, answers[at] if answers is not None else None, now_ms))
    return collapse(terms)


def _as_wished(queue: Queue, messages: Sequence[NewMessage], now_ms: int) -> Terms:
    """Return the terms where only producers have a say: most columns are empty, and found so without a loop each."""
    terms = Terms([message.fairness_key or DEFAULT_KEY for message in messages])
    if any(message.weight is not None for message in messages):
        terms.weights = [message.weight or 1 for message in messages]
    if any(message.cost is not None for message in messages):
        terms.costs = [message.cost or 1 for message in messages]
    if any(message.priority is not None for message in messages):
        terms.priorities = [PRIORITY_NAMES.index(message.priority or "normal") for message in messages]
    if any(message.throttles for message in messages):
        terms.throttles = [scoped(queue, message.throttles) for message in messages]
    if any(message.delay_ms for message in messages):
        terms.due_ms = [now_ms + message.delay_ms if message.delay_ms else None for message in messages]
    if any(message.deadline_ms is not None for message in messages):
        terms.deadlines_ms = [
            None if message.deadline_ms is None else now_ms + message.deadline_ms for message in messages
        ]
    return terms


Row = tuple[Key, int, int, int, list[str], int | None, int | None, int | None]


def _one(queue: Queue, rules: Declared, message: NewMessage, answer: EnqueueAnswer | None, now_ms: int) -> Row:
    headers: Headers = message.headers
    if answer is None:
        answer = _NO_ANSWER
    key = answer.fairness_key or rules.key(headers) or message.fairness_key or DEFAULT_KEY
    throttles = _first(answer.throttles, rules.throttles(headers), message.throttles)
    priority = _first(answer.priority, rules.priority(headers), None)
    if priority is None:
        priority = PRIORITY_NAMES.index(message.priority or "normal")
    delay_ms = _first(answer.delay_ms, None, message.delay_ms)
    deadline_ms = _first(answer.deadline_ms, message.deadline_ms, queue.policy.deadline_ms)
    return (
        key,
        _first(answer.weight, rules.weight(headers), message.weight) or 1,
        _first(answer.cost, rules.cost(headers), message.cost) or 1,
        int(priority),
        scoped(queue, throttles or ()),
        now_ms + delay_ms if delay_ms else None,
        None if deadline_ms is None else now_ms + deadline_ms,
        _first(answer.cap, rules.cap(headers), None),
    )


_NO_ANSWER = EnqueueAnswer()


def _first(one: T | None, other: T | None, last: T | None) -> T | None:
    if one is not None:
        return one
    return other if other is not None else last


def scoped(queue: Queue, throttles: Sequence[str]) -> list[str]:
    """Return throttles under the names of their buckets: sorted, each once, the queue's own if its policy says so."""
    names = sorted(set(throttles)) if len(throttles) > 1 else list(throttles)
    if queue.policy.throttle_scope == "queue":
        return [f"{queue.name}/{name}" for name in names]
    return names


def _append(terms: Terms, row: Row) -> None:
    columns = (
        terms.keys,
        terms.weights,
        terms.costs,
        terms.priorities,
        terms.throttles,
        terms.due_ms,
        terms.deadlines_ms,
        terms.caps,
    )
    for column, value in zip(columns, row, strict=True):
        column.append(value)  # type: ignore[union-attr, arg-type] # all columns are there, each of its own type


def collapse(terms: Terms) -> Terms:
    """Return terms with None for every column of nothing but defaults."""
    return Terms(
        terms.keys,
        _unless_all(terms.weights, 1),
        _unless_all(terms.costs, 1),
        _unless_all(terms.priorities, _NORMAL),
        terms.throttles if terms.throttles is not None and any(terms.throttles) else None,
        _unless_all(terms.due_ms, None),
        _unless_all(terms.deadlines_ms, None),
        _unless_all(terms.caps, None),
    )


def _unless_all(column: list[T] | None, default: T) -> list[T] | None:
    return None if column is None or all(value == default for value in column) else column


def take_rows(terms: Terms, rows: Sequence[int]) -> Terms:
    """Return some rows of terms."""

    def take(column: list[T] | None) -> list[T] | None:
        return None if column is None else [column[row] for row in rows]

    return Terms(
        [terms.keys[row] for row in rows],
        take(terms.weights),
        take(terms.costs),
        take(terms.priorities),
        take(terms.throttles),
        take(terms.due_ms),
        take(terms.deadlines_ms),
        take(terms.caps),
    )
