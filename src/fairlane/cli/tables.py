"""Views of the broker as tables: queues, fairness keys, throttles, messages, consumers and sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import msgspec

from fairlane.cli.formatting import age, duration, excerpt, instant, now_ms, size
from fairlane.cli.output import Table
from fairlane.model.claims import ConsumerView
from fairlane.model.message import FailedAttempt, FailureDetail, Key, MessageView, key_text
from fairlane.model.policy import QueuePolicy
from fairlane.model.shares import entitlements
from fairlane.model.staging import SinkView
from fairlane.model.views import KeyView, QueueView, RedriveView, ThrottleView
from fairlane.verbs.templates import QueueTemplate

_QUEUE_NUMBERS = frozenset({"waiting", "leased", "dead", "waiters", "size", "refused", "partitions"})
_KEY_NUMBERS = frozenset({"share", "weight", "waiting", "leased", "cap", "wait p99"})


def of_queues(views: Sequence[QueueView]) -> Table:
    """Return a table of queues, with refused messages and partitions if one of them has any."""
    at = now_ms()
    is_split, has_refused = any(view.partitions > 1 for view in views), any(view.refused for view in views)
    rows = [
        [
            view.name,
            str(view.waiting),
            str(view.leased),
            str(view.dead),
            size(view.size),
            age(view.oldest_ms, at),
            str(view.waiters + view.consumers),
            "paused" if view.is_paused else "open",
            *([str(view.refused)] if has_refused else []),
            *([str(max(1, view.partitions))] if is_split else []),
        ]
        for view in views
    ]
    columns = ["queue", "waiting", "leased", "dead", "size", "oldest", "waiters", "state"]
    columns += ["refused"] if has_refused else []
    columns += ["partitions"] if is_split else []
    return Table(columns, rows, numbers=_QUEUE_NUMBERS)


def of_redrives(views: Sequence[RedriveView]) -> Table:
    """Return a table of redrives and dry runs."""
    rows = [
        [
            view.id,
            view.queue,
            view.status,
            str(view.moved),
            str(view.total),
            "-" if view.rate is None else f"{view.rate:g}/s",
            view.target or "each its own",
            instant(view.started_ms),
            view.error or "",
        ]
        for view in views
    ]
    columns = ["redrive", "queue", "status", "moved", "of", "rate", "to", "started", "remark"]
    return Table(columns, rows, numbers=frozenset({"moved", "of"}))


def of_templates(templates: Mapping[str, QueueTemplate]) -> Table:
    """Return a table of queue templates."""
    rows = [
        [
            pattern,
            f"up to {template.queues_max} queues" if template.auto_create else "no",
            ", ".join(f"{name}={str(value)[:40]}" for name, value in sorted(template.policy.items())) or "-",
        ]
        for pattern, template in sorted(templates.items())
    ]
    return Table(["pattern", "auto-create", "policy"], rows)


def of_queue(view: QueueView) -> list[Table]:
    """Return the tables of one queue: facts, policy, fairness keys, throttles and redrives."""
    facts = [
        ["queue", view.name],
        ["state", "paused" if view.is_paused else "open"],
        ["waiting", str(view.waiting)],
        ["leased", f"{view.leased}, {view.claimed} claimed" if view.claimed else str(view.leased)],
        *([["staged", str(view.staged)]] if view.staged else []),
        *([["partitions", str(view.partitions)]] if view.partitions > 1 else []),
        ["dead letters", str(view.dead)],
        *([["refused", str(view.refused)]] if view.refused else []),
        ["size", size(view.size)],
        ["oldest", age(view.oldest_ms, now_ms())],
        ["waiters", str(view.waiters + view.consumers)],
        ["created", instant(view.created_ms)],
        *([["paused keys", ", ".join(map(key_text, view.paused_keys))]] if view.paused_keys else []),
    ]
    return [Table([], facts), Table([], _policy(view.policy), title="Policy"), *of_keys(view)]


def _policy(policy: QueuePolicy) -> list[list[str]]:
    """Return the fields of a policy that differ from the default, and the two that matter for every queue."""
    default, always = QueuePolicy(), ("visibility_timeout_ms", "max_attempts")
    fields = msgspec.structs.asdict(policy).items()
    return [[name, _value(name, value)] for name, value in fields if name in always or value != getattr(default, name)]


def _value(name: str, value: object) -> str:
    if name.startswith("on_") and isinstance(value, str):
        return f"script of {len(value.splitlines())} lines"
    if name.endswith("_ms") and isinstance(value, int):
        return duration(value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={part}" for key, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def of_keys(view: QueueView) -> list[Table]:
    """Return the tables of a queue's fairness keys, of the throttles that its messages name, and of redrives."""
    found = []
    if view.keys:
        at = now_ms()
        rows = [_key(key, share, at) for key, share in zip(view.keys, shares_of(view), strict=True)]
        shown = f"{len(view.keys)} of " if (view.active_keys or 0) > len(view.keys) else ""
        title = f"{shown}{view.active_keys} fairness key{'' if view.active_keys == 1 else 's'}"
        columns = ["key", "share", "weight", "waiting", "leased", "cap", "wait p99", "throttled", "state"]
        found.append(Table(columns, rows, title=title, numbers=_KEY_NUMBERS))
    if view.throttles:
        rows = [_throttle(throttle) for throttle in view.throttles]
        numbers = frozenset({"rate", "burst", "tokens"})
        found.append(Table(["throttle", "rate", "burst", "tokens", "state"], rows, title="Throttles", numbers=numbers))
    if view.redrives:
        found.append(of_redrives(view.redrives))
    return found


def _key(view: KeyView, share: float, at_ms: int) -> list[str]:
    is_capped = view.cap is not None and view.leased >= view.cap
    return [
        key_text(view.key),
        f"{share:.1%}",
        str(view.weight),
        str(view.messages - view.leased),
        str(view.leased),
        "-" if view.cap is None else str(view.cap),
        "-" if view.wait_p99_ms is None else duration(view.wait_p99_ms),
        _throttled(view, at_ms),
        "paused" if view.is_paused else "capped" if is_capped else "throttled" if view.throttle is not None else "open",
    ]


def _throttled(view: KeyView, at_ms: int) -> str:
    if view.throttle is None:
        return "-"
    if view.throttled_until_ms is None:
        return f"by {view.throttle}"
    return f"by {view.throttle} for {duration(max(1, view.throttled_until_ms - at_ms))}"


def _throttle(view: ThrottleView) -> list[str]:
    return [
        view.name if view.buckets is None else f"{view.name} ({view.buckets} in use)",
        f"{view.rate:g}/s" + (" by cost" if view.charges_cost else ""),
        f"{view.burst:g}",
        str(view.tokens),
        "throttled" if view.tokens < 1 else "open",
    ]


def of_consumers(views: Sequence[ConsumerView]) -> Table:
    """Return a table of registered consumers."""
    at = now_ms()
    rows = [
        [
            view.name,
            str(view.epoch),
            str(view.claimed),
            str(view.done),
            str(view.open_messages),
            age(view.heard_ms, at),
            "never" if view.idle_ms is None else duration(view.idle_ms),
        ]
        for view in views
    ]
    columns = ["consumer", "epoch", "claimed", "done", "open", "last seen", "idle after"]
    return Table(columns, rows, numbers=frozenset({"epoch", "claimed", "done", "open"}))


def of_sinks(views: Sequence[SinkView]) -> Table:
    """Return a table of sinks."""
    at = now_ms()
    rows = [
        [
            view.name,
            "-" if view.batch is None else str(view.batch),
            str(view.staged_messages),
            size(view.staged_bytes),
            age(view.heard_ms, at),
        ]
        for view in views
    ]
    return Table(["sink", "batch", "staged", "size", "last seen"], rows, numbers=frozenset({"batch", "staged", "size"}))


def of_messages(views: Sequence[MessageView]) -> Table:
    """Return a table of messages; for dead letters, with the reason."""
    at = now_ms()
    is_dead = any(view.dead is not None for view in views)
    columns = ["id", "key", "state", "age", "failures", "size", "payload"]
    rows = [
        [
            view.id,
            key_text(view.fairness_key),
            view.status,
            age(view.enqueued_ms, at),
            str(view.failures),
            size(view.size),
            excerpt(view.payload),
            *([_reason(view), view.errors[-1].error if view.errors else ""] if is_dead else []),
        ]
        for view in views
    ]
    return Table(columns + ["reason", "last error"] * is_dead, rows, numbers=frozenset({"failures", "size"}))


def _reason(view: MessageView) -> str:
    return view.dead.reason if view.dead is not None else "-"


def of_message(view: MessageView) -> list[Table]:
    """Return the tables of one message: facts, headers, failed and lost attempts, and payload."""
    facts = [
        ["id", view.id],
        ["queue", view.queue],
        ["state", view.status],
        ["key", key_text(view.fairness_key)],
        ["weight, cost", f"{view.weight}, {view.cost}"],
        ["priority", view.priority],
        ["throttles", ", ".join(view.throttles) or "-"],
        ["enqueued", instant(view.enqueued_ms)],
        ["attempts", f"{view.attempts}, {view.failures} failed"],
        ["size", size(view.size)],
        ["correlation id", view.correlation_id or "-"],
        *_rare_facts(view),
        ["payload", excerpt(view.payload, 400)],
    ]
    found = [Table([], facts)]
    if view.headers:
        found.append(Table(["header", "value"], [list(pair) for pair in sorted(view.headers.items())]))
    if view.errors:
        found += of_failures(view.errors)
    return found


def of_failures(errors: Sequence[FailedAttempt]) -> list[Table]:
    """Return a table of failed and lost attempts, and the traceback of the latest if it has one."""
    rows = [
        [str(failed.attempt), instant(failed.at_ms), failed.reason, failed.error, _place(failed.detail)]
        for failed in errors
    ]
    columns = ["attempt", "at", "reason", "error"]
    if any(row[-1] for row in rows):
        columns.append("worker")
    found = [Table(columns, [row[: len(columns)] for row in rows], title="Failed and lost attempts")]
    detail = errors[-1].detail
    if detail is not None and detail.traceback:
        lines = [[line] for line in detail.traceback.splitlines()]
        found.append(Table(["traceback"], lines, title="Latest failure"))
    return found


def _place(detail: FailureDetail | None) -> str:
    """Return the worker of a failed attempt, with its host unless the name of the worker begins with that."""
    if detail is None or not detail.host or detail.worker.startswith(f"{detail.host}:"):
        return "" if detail is None else detail.worker
    return f"{detail.worker} on {detail.host}" if detail.worker else detail.host


def _rare_facts(view: MessageView) -> list[list[str]]:
    """Return what only some messages have."""
    return [
        *([["leased by", _lessee(view)]] if view.status == "leased" else []),
        *([["due", instant(view.due_ms)]] if view.due_ms is not None else []),
        *([["deadline", instant(view.deadline_ms)]] if view.deadline_ms is not None else []),
        *([["max attempts", str(view.max_attempts)]] if view.max_attempts is not None else []),
        *([["visibility", f"{view.visibility_timeout_ms} ms"]] if view.visibility_timeout_ms is not None else []),
        *([["order key", view.order_key]] if view.order_key is not None else []),
        *([["unique key", view.unique_key]] if view.unique_key is not None else []),
        *([["died", f"{view.dead.reason}, {instant(view.dead.at_ms)}"]] if view.dead is not None else []),
    ]


def _lessee(view: MessageView) -> str:
    end = f"until {instant(view.expires_ms)}" if view.claim is None else f"under claim {view.claim}"
    return f"{view.owner or '-'} {end}"


_UNSEEN: Key = ""
"""Stands for all active keys that the view does not list; no fairness key is empty."""


def shares_of(view: QueueView) -> list[float]:
    """Return the share of each listed key, if all active keys have work and nothing holds them back.

    Keys that are not listed count with weight 1. The weight of a name that is only above others is taken from the
    policy; config may set another one.
    """
    weights = {key.key: key.weight for key in view.keys}
    unseen = max(0, (view.active_keys or 0) - len(view.keys))

    def weight_of(key: Key) -> int:
        return unseen if key == _UNSEEN else weights.get(key, view.policy.weights.get(key_text(key), 1))

    wanted = dict.fromkeys(weights, inf) | ({_UNSEEN: inf} if unseen else {})
    shares = entitlements(1.0, wanted, weight_of)
    return [shares[key] for key in weights]
