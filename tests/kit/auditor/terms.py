"""The terms that a message must have: the queue's declaration, then the producer's value, then the default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from fairlane.model.limits import CAP_MAX, COST_MAX, WEIGHT_MAX
from fairlane.model.message import NewMessage
from fairlane.model.policy import QueuePolicy
from tests.kit.auditor.books import path_of
from tests.kit.simulation.hooks import enqueue_answer

_PRIORITIES = {"high": 0, "normal": 1, "low": 2, "0": 0, "1": 1, "2": 2}


def expected_terms(queue: str, policy: QueuePolicy, message: NewMessage, at_ms: int) -> dict[str, Any]:
    """Return the terms of a message that is enqueued at an instant."""
    headers = message.headers
    answer = enqueue_answer(headers) if policy.on_enqueue is not None else None
    if answer is not None:  # what a hook says wins over everything
        policy = msgspec.structs.replace(policy, fairness_key_from=None, cost_from=None, throttles_from=())
        message = msgspec.structs.replace(
            message, fairness_key=answer.fairness_key, cost=answer.cost, throttles=answer.throttles or ()
        )
    deadline_ms = message.deadline_ms if message.deadline_ms is not None else policy.deadline_ms
    return {
        "path": _key(policy, message),
        "weight": _whole(policy.weight_from, headers, least=1, most=WEIGHT_MAX) or message.weight or 0,
        "cost": _whole(policy.cost_from, headers, least=1, most=COST_MAX) or message.cost or 1,
        "priority": _priority(policy, message),
        "throttles": _throttles(queue, policy, message),
        "due_ms": at_ms + message.delay_ms if message.delay_ms else None,
        "deadline_ms": None if deadline_ms is None else at_ms + deadline_ms,
        "cap": _whole(policy.cap_from, headers, least=0, most=CAP_MAX),
        "attempts_max": message.max_attempts,
        "visibility_ms": message.visibility_timeout_ms,
        "ttl_ms": message.result_ttl_ms,
        "order_key": message.order_key,
        "unique_key": message.unique_key,
    }


def _text(source: str | None, headers: Mapping[str, str]) -> str | None:
    if source is None:
        return None
    if source.startswith("header:"):
        return headers.get(source.removeprefix("header:"))
    names = re.findall(r"\{(\w+)\}", source)
    if any(name not in headers for name in names):
        return None
    return source.format_map(dict(headers))


def _key(policy: QueuePolicy, message: NewMessage) -> tuple[str, ...]:
    declared = policy.fairness_key_from
    sources = () if declared is None else path_of(declared)
    path: list[str] = []
    for source in sources:
        name = _text(source, message.headers)
        if not name:
            break
        path.append(name)
    return tuple(path) or path_of(message.fairness_key or "default")


def _whole(source: str | None, headers: Mapping[str, str], *, least: int, most: int) -> int | None:
    text = _text(source, headers)
    if text is None or not text.lstrip("-").isdigit():
        return None
    return max(least, min(most, int(text)))


def _priority(policy: QueuePolicy, message: NewMessage) -> int:
    declared = _PRIORITIES.get(_text(policy.priority_from, message.headers) or "")
    return _PRIORITIES[message.priority or "normal"] if declared is None else declared


def _throttles(queue: str, policy: QueuePolicy, message: NewMessage) -> tuple[str, ...]:
    declared = {name for source in policy.throttles_from if (name := _text(source, message.headers))}
    scope = f"{queue}/" if policy.throttle_scope == "queue" else ""
    return tuple(scope + name for name in sorted(declared.union(message.throttles)))
