"""What the scheduler goes by for each message: the hook's answer, then what is declared, then the producer's wish."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from fairlane.core.ledger import Queue
from fairlane.core.sources import Declared, Headers
from fairlane.journal.records import Terms
from fairlane.model.answers import EnqueueAnswer
from fairlane.model.message import DEFAULT_KEY, PRIORITY_NAMES, NewMessage, canonical
from fairlane.model.partitions import queue_of
from fairlane.verbs.columns import MessageColumns

UNSAID = 0
"""The weight of a message without one: it leaves its key's weight as it is."""
_NORMAL = PRIORITY_NAMES.index("normal")
_PRIORITIES: dict[str | None, int] = {None: _NORMAL} | {name: at for at, name in enumerate(PRIORITY_NAMES)}
T = TypeVar("T")


def resolve(
    queue: Queue,
    messages: Sequence[NewMessage],
    answers: Sequence[EnqueueAnswer | None] | None,
    now_ms: int,
    *,
    is_bare: bool = False,
) -> Terms:
    """Return the terms of new messages, as columns. Bare ones have no wishes but their keys."""
    wishes = messages.keys if type(messages) is MessageColumns else [message.fairness_key for message in messages]
    terms = Terms([key or DEFAULT_KEY for key in wishes])
    if not is_bare:
        _add_wishes(terms, messages, now_ms)
    if not queue.declared.is_empty:
        _add_declared(terms, queue.declared, [message.headers for message in messages])
    if answers is not None:
        _add_answers(terms, answers, now_ms)
    if tuple in set(map(type, terms.keys)):
        terms.keys = [canonical(key) for key in terms.keys]
    if queue.policy.deadline_ms is not None:
        deadline_ms = now_ms + queue.policy.deadline_ms
        terms.deadlines_ms = [
            deadline_ms if known is None else known for known in terms.deadlines_ms or [None] * len(messages)
        ]
    if terms.throttles is not None:
        terms.throttles = [scoped(queue, names) for names in terms.throttles]
    return terms if is_bare and answers is None and queue.declared.is_empty else collapse(terms)


def _add_wishes(terms: Terms, messages: Sequence[NewMessage], now_ms: int) -> None:
    terms.weights = [message.weight or UNSAID for message in messages]
    terms.costs = [message.cost or 1 for message in messages]
    terms.priorities = [_PRIORITIES[message.priority] for message in messages]
    terms.throttles = [list(message.throttles) for message in messages]
    terms.due_ms = [now_ms + message.delay_ms if message.delay_ms else None for message in messages]
    terms.deadlines_ms = [None if message.deadline_ms is None else now_ms + message.deadline_ms for message in messages]
    terms.max_attempts = [message.max_attempts for message in messages]
    terms.visibilities_ms = [message.visibility_timeout_ms for message in messages]
    terms.result_ttls_ms = [message.result_ttl_ms for message in messages]
    terms.order_keys = [message.order_key for message in messages]
    terms.unique_keys = [message.unique_key for message in messages]


def _add_declared(terms: Terms, rules: Declared, headers: list[Headers]) -> None:
    """Override what producers ask for with what the policy declares, wherever headers have a usable value."""
    if rules.has_key:
        terms.keys = [rules.key(said) or wish for said, wish in zip(headers, terms.keys, strict=True)]
    if rules.has_weight:
        terms.weights = _over(map(rules.weight, headers), terms.weights, UNSAID)
    if rules.has_cost:
        terms.costs = _over(map(rules.cost, headers), terms.costs, 1)
    if rules.has_priority:
        terms.priorities = _over(map(rules.priority, headers), terms.priorities, _NORMAL)
    if rules.has_throttles:
        wishes = terms.throttles or [[] for _ in headers]
        terms.throttles = [rules.throttles(said) + wish for said, wish in zip(headers, wishes, strict=True)]
    if rules.has_cap:
        terms.caps = [rules.cap(said) for said in headers]


def _over(said: Iterable[int | None], wishes: list[int] | None, default: int) -> list[int]:
    if wishes is None:
        return [default if value is None else value for value in said]
    return [wish if value is None else value for value, wish in zip(said, wishes, strict=True)]


def _add_answers(terms: Terms, answers: Sequence[EnqueueAnswer | None], now_ms: int) -> None:
    """Override everything else with what the hook answers."""
    n = len(answers)
    weights = terms.weights = terms.weights or [UNSAID] * n
    costs = terms.costs = terms.costs or [1] * n
    priorities = terms.priorities = terms.priorities or [_NORMAL] * n
    throttles = terms.throttles = terms.throttles or [[] for _ in answers]
    due_ms = terms.due_ms = terms.due_ms or [None] * n
    deadlines_ms = terms.deadlines_ms = terms.deadlines_ms or [None] * n
    caps = terms.caps = terms.caps or [None] * n
    for row, answer in enumerate(answers):
        if answer is None:
            continue
        if answer.fairness_key is not None:
            terms.keys[row] = answer.fairness_key
        if answer.weight is not None:
            weights[row] = answer.weight
        if answer.throttles is not None:
            throttles[row] = list(answer.throttles)
        if answer.cost is not None:
            costs[row] = answer.cost
        if answer.priority is not None:
            priorities[row] = int(answer.priority)
        if answer.delay_ms is not None:
            due_ms[row] = now_ms + answer.delay_ms if answer.delay_ms else None
        if answer.deadline_ms is not None:
            deadlines_ms[row] = now_ms + answer.deadline_ms
        if answer.cap is not None:
            caps[row] = answer.cap


def scoped(queue: Queue, throttles: Sequence[str]) -> list[str]:
    """Return throttles under the names of their buckets: sorted, each once, the queue's own if its policy says so."""
    names = sorted(set(throttles)) if len(throttles) > 1 else list(throttles)
    if queue.policy.throttle_scope == "queue":
        return [f"{queue_of(queue.name)}/{name}" for name in names]
    return names


def unscoped(queue: Queue | None, throttles: Iterable[str]) -> tuple[str, ...]:
    """Return throttles as producers name them, from the names of their buckets in the queue; None is a deleted queue.

    Only a queue with throttles of its own puts its name before theirs: a shared throttle may be called ``orders/api``.
    """
    if queue is not None and queue.policy.throttle_scope == "queue":
        return tuple(name.removeprefix(f"{queue_of(queue.name)}/") for name in throttles)
    return tuple(throttles)


def collapse(terms: Terms) -> Terms:
    """Return terms with None for every column of nothing but defaults."""
    return Terms(
        terms.keys,
        _unless_all(terms.weights, UNSAID),
        _unless_all(terms.costs, 1),
        _unless_all(terms.priorities, _NORMAL),
        terms.throttles if terms.throttles is not None and any(terms.throttles) else None,
        _unless_all(terms.due_ms, None),
        _unless_all(terms.deadlines_ms, None),
        _unless_all(terms.caps, None),
        _unless_all(terms.max_attempts, None),
        _unless_all(terms.visibilities_ms, None),
        _unless_all(terms.result_ttls_ms, None),
        _unless_all(terms.order_keys, None),
        _unless_all(terms.unique_keys, None),
    )


def _unless_all(column: list[T] | None, default: T) -> list[T] | None:
    return None if column is None or column.count(default) == len(column) else column


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
        take(terms.max_attempts),
        take(terms.visibilities_ms),
        take(terms.result_ttls_ms),
        take(terms.order_keys),
        take(terms.unique_keys),
    )
