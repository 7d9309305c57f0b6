"""The policy of a queue: what an operator decides about it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec

from fairlane.model.bounds import ByKey, RequestKey, Throttles, excess_of
from fairlane.model.hook_limits import HookLimits
from fairlane.model.limits import (
    BATCH_MAX,
    CAP_MAX,
    HOOK_COOLDOWN_MS_MIN,
    HOOK_MEMORY_BYTES_MAX,
    HOOK_MEMORY_BYTES_MIN,
    HOOK_TIMEOUT_MS_MAX,
    KEY_DEPTH_MAX,
    RATE_LEAST,
    RATE_MAX,
    SCRIPT_LENGTH_MAX,
    THROTTLES_MAX,
    TIMESPAN_MS_MAX,
    WEIGHT_MAX,
)
from fairlane.model.names import queue_name_fault
from fairlane.model.spelling import did_you_mean

QueueBackpressure = Literal["reject", "wait", "drop_oldest", "drop_newest"]
_COUNT_MAX = 1 << 53
_FACTOR_MAX = 100
_WAITING_MAX = 2_000_000
"""A waiting message takes 451 bytes of memory, 1,059 with a key of its own: a full queue takes 0.9 to 2.1 GB."""
_WAITING_BYTES_MAX = 64 << 30
"""Payloads are on disk."""


class QueuePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy of one queue. Every field may be changed while the queue is in use.

    Most fields act on the backlog at once. Hooks, declared keys and the default deadline apply to new messages, whose
    terms are resolved at enqueue.

    The terms of a message are resolved in this order: the hook's answer, what is declared here, what the producer sent,
    the default. So a producer cannot override the operator's rules.

    Declared keys come from *sources*: ``"header:NAME"`` is the value of a header; any other text is taken literally,
    with each ``{NAME}`` replaced by the value of that header. A source whose header is missing gives no value.

    Attributes:
        visibility_timeout_ms: how long a lease lasts unless the consumer requests another timeout or extends it.
        late_ack: whether a consumer may still acknowledge a message after its lease has expired or was released, until
            the message is leased again.
        max_attempts: failed attempts before a message goes to the dead-letter queue; 0 for no limit.
        max_expiries: leases that expire, or whose consumers disconnect, before a message goes to the dead-letter queue;
            0 for no limit.
        dead_letter_queue: the dead-letter queue, if it is not the queue's own: any other queue, such as ``failures``,
            or that of another, such as ``failures.dlq``. Several queues may share one.
        backoff_ms: the delay after the first failed attempt; 0 to retry at once.
        backoff_factor: the factor by which the delay grows after each further one.
        backoff_max_ms: the longest delay.
        backoff_jitter: the random fraction by which the delay is reduced at most, from 0 to 1.
        deadline_ms: how long after its enqueue a message may be handed out, unless the message sets a deadline.
        deadline_action: what happens to a message whose deadline has passed.
        waiting_max: the limit on messages in the queue, including leased ones.
        waiting_bytes_max: the limit on their payload bytes in total.
        key_waiting_max: the limit on messages of one fairness key in the queue.
        key_waiting_bytes_max: the limit on the payload bytes of one fairness key.
        in_flight_max: how many messages may be leased at once in total; a tenant below its floor may exceed it.
        key_floor: how many messages of each tenant may be leased at once even if ``in_flight_max`` is reached.
        key_cap: how many messages of each tenant, that is of each top-level fairness key, may be leased at once.
        key_rate: how many messages of each tenant may be leased in a second.
        key_burst: how many messages of each tenant may be leased at once after a rest; by default those of one second.
        key_charge: whether a message counts as one in ``key_rate`` and ``key_burst``, or with ``cost`` as many as it
            costs.
        order: ``strict`` to hand out the messages of a key one after the other, each only when the one before it is
            done; ``relaxed`` to let a retried or delayed message go after later ones.
        order_batch_max: with strict order, how many messages of a key one lease or claim may have. A stream or worker
            has one at a time.
        backpressure: what happens when a limit is reached. Leased messages are never dropped.
        dedup_window_ms: how long a dedup id or a producer number is remembered.
        result_ttl_ms: how long the result of a message is kept, and how it ended; 0 for not at all.
        on_enqueue: the Lua script that runs for each new message.
        on_failure: the Lua script that runs for each attempt that fails or whose lease expires.
        fairness_key_from: the source of the fairness key, or several for a path.
        weight_from: the source of the key's weight.
        cost_from: the source of a message's cost.
        priority_from: the source of a message's priority: ``high``, ``normal`` or ``low``.
        cap_from: the source of the key's cap.
        throttles_from: the sources of a message's throttles.
        weights: weights by key; a path is written with slashes. Only config overrides them.
        caps: caps by key; only config overrides them.
        quantum: the deficit that one turn adds to a key of weight 1.
        strict_priority: serve higher priority first across all keys, not only within one.
        producer_weights: whether producers may set weights, and with ``strict_priority`` priorities. An API key that is
            limited to fairness keys never may.
        throttle_scope: whether a throttle name is shared by all queues or belongs to this queue.
        journal_retention_ms: how long to keep the journal at least; the longest of all queues counts.
        hook_timeout_ms: how long a script may take for one message; the broker's setting by default.
        hook_memory_bytes_max: how much memory a script may use; the broker's setting by default.
        hook_breaker_threshold: consecutive faults after which scripts are bypassed; the broker's setting by default.
        hook_breaker_cooldown_ms: how long they are bypassed; the broker's setting by default.
    """

    visibility_timeout_ms: int = 30_000
    late_ack: bool = False
    max_attempts: int = 5
    max_expiries: int = 0
    dead_letter_queue: str | None = None
    backoff_ms: int = 0
    backoff_factor: float = 2.0
    backoff_max_ms: int = 300_000
    backoff_jitter: float = 0.25
    deadline_ms: int | None = None
    deadline_action: Literal["drop", "dlq"] = "drop"
    waiting_max: int | None = _WAITING_MAX
    waiting_bytes_max: int | None = _WAITING_BYTES_MAX
    key_waiting_max: int | None = None
    key_waiting_bytes_max: int | None = None
    backpressure: QueueBackpressure = "reject"
    dedup_window_ms: int = 300_000
    on_enqueue: str | None = None
    on_failure: str | None = None
    fairness_key_from: RequestKey | None = None
    weight_from: str | None = None
    cost_from: str | None = None
    priority_from: str | None = None
    cap_from: str | None = None
    throttles_from: Throttles = ()
    weights: ByKey = {}
    caps: ByKey = {}
    quantum: int = 1
    strict_priority: bool = False
    producer_weights: bool = True
    throttle_scope: Literal["shared", "queue"] = "shared"
    journal_retention_ms: int | None = None
    hook_timeout_ms: int | None = None
    hook_memory_bytes_max: int | None = None
    hook_breaker_threshold: int | None = None
    hook_breaker_cooldown_ms: int | None = None
    key_cap: int | None = None
    key_rate: float | None = None
    key_burst: float | None = None
    key_charge: Literal["message", "cost"] = "message"
    in_flight_max: int | None = None
    key_floor: int = 0
    result_ttl_ms: int = 0
    order: Literal["relaxed", "strict"] = "relaxed"
    order_batch_max: int = 1

    @property
    def hook_limits(self) -> HookLimits:
        """The limits of its scripts."""
        return HookLimits(
            timeout_ms=None if self.hook_timeout_ms is None else min(self.hook_timeout_ms, HOOK_TIMEOUT_MS_MAX),
            memory_bytes_max=self.hook_memory_bytes_max,
            breaker_threshold=self.hook_breaker_threshold,
            breaker_cooldown_ms=self.hook_breaker_cooldown_ms,
        )

    def fault(self) -> str | None:
        """Return the first fault of the policy, or None."""
        return next(_faults(self), None)


def policy_from(fields: dict[str, object], *, base: QueuePolicy | None = None) -> QueuePolicy:
    """Return a policy with these fields, based on another.

    Raises:
        ValueError: a name is unknown, or a value has the wrong type or is out of range.
    """
    if (fault := _spelling_fault(fields)) is not None:
        raise ValueError(fault)
    known = {} if base is None else {name: getattr(base, name) for name in QueuePolicy.__struct_fields__}
    try:
        policy = msgspec.convert(known | fields, QueuePolicy)
        msgspec.msgpack.encode(policy)  # only encoding detects lone surrogates and numbers beyond 64 bits
    except (msgspec.ValidationError, UnicodeEncodeError, OverflowError) as error:
        raise ValueError(f"Invalid queue policy: {error}.") from error
    if (fault := policy.fault()) is not None:
        raise ValueError(fault)
    return policy


def _spelling_fault(fields: dict[str, object]) -> str | None:
    """Return the first unknown field name or value, with a suggestion, or None."""
    hints = get_type_hints(QueuePolicy)
    for name, value in fields.items():
        if name not in hints:
            return f"A queue policy has no field {name!r:.100}.{did_you_mean(name, hints)}"
        words = get_args(hints[name]) if get_origin(hints[name]) is Literal else None
        if words is not None and value not in words:
            return f"{name} must be one of {', '.join(words)}, got {value!r:.100}.{did_you_mean(value, words)}"
    return None


def _faults(policy: QueuePolicy) -> Iterator[str]:
    spans = ("visibility_timeout_ms", "backoff_ms", "backoff_max_ms", "dedup_window_ms", "result_ttl_ms")
    for name in (*spans, "deadline_ms", "journal_retention_ms"):
        least = 1 if name in ("visibility_timeout_ms", "deadline_ms") else 0
        yield from _range_fault(policy, name, least=least, most=TIMESPAN_MS_MAX)
    for name in ("waiting_max", "waiting_bytes_max", "key_waiting_max", "key_waiting_bytes_max"):
        yield from _range_fault(policy, name, least=1, most=_COUNT_MAX)
    yield from _in_flight_faults(policy)
    yield from _rate_faults(policy)
    yield from _range_fault(policy, "quantum", least=1, most=1_000_000)
    yield from _order_faults(policy)
    yield from _retry_faults(policy)
    yield from _source_faults(policy)
    yield from _hook_faults(policy)
    for table, name, most in ((policy.weights, "weights", WEIGHT_MAX), (policy.caps, "caps", CAP_MAX)):
        if (fault := excess_of(name, table, "POLICY_KEYS_MAX")) is not None:
            yield fault
        least = 1 if name == "weights" else 0
        for key, value in table.items():
            if not (key and least <= value <= most):
                yield f"{name} must map non-empty keys to integers from {least} to {most}, got {key!r}: {value}."


def _in_flight_faults(policy: QueuePolicy) -> Iterator[str]:
    for name in ("key_cap", "in_flight_max", "key_floor"):
        yield from _range_fault(policy, name, least=0, most=CAP_MAX)
    if policy.key_floor and policy.in_flight_max is None:
        yield f"key_floor {policy.key_floor} needs a limit on messages in flight. Set in_flight_max as well."


def _order_faults(policy: QueuePolicy) -> Iterator[str]:
    yield from _range_fault(policy, "order_batch_max", least=1, most=BATCH_MAX)
    if policy.order == "relaxed":
        if policy.order_batch_max > 1:
            yield f"order_batch_max {policy.order_batch_max} needs strict order. Set order to strict as well."
        return
    if policy.late_ack:
        yield "late_ack would acknowledge messages out of order. Set late_ack to false, or order to relaxed."
    if policy.backpressure.startswith("drop"):
        yield f"backpressure {policy.backpressure} would leave gaps in a strict order. Use reject or wait."


def _retry_faults(policy: QueuePolicy) -> Iterator[str]:
    for name in ("max_attempts", "max_expiries"):
        yield from _range_fault(policy, name, least=0, most=BATCH_MAX)
    if not (math.isfinite(policy.backoff_factor) and 1 <= policy.backoff_factor <= _FACTOR_MAX):
        yield f"backoff_factor must be a number from 1 to 100, got {policy.backoff_factor}."
    if not 0 <= policy.backoff_jitter <= 1:
        yield f"backoff_jitter must be a number from 0 to 1, got {policy.backoff_jitter}."
    dlq = policy.dead_letter_queue
    if dlq is not None and (fault := queue_name_fault(dlq)) is not None:
        yield f"dead_letter_queue: {fault}"


def _rate_faults(policy: QueuePolicy) -> Iterator[str]:
    for name, least in (("key_rate", RATE_LEAST), ("key_burst", 1)):
        value = getattr(policy, name)
        if value is not None and not (value == 0 or least <= value <= RATE_MAX):
            yield f"{name} must be 0, or a number from {least:f} to {RATE_MAX:.0e}, got {value}."
    if policy.key_burst is not None and policy.key_rate is None:
        yield f"key_burst {policy.key_burst} needs a rate. Set key_rate as well."
    if policy.key_charge != "message" and policy.key_rate is None:
        yield f"key_charge {policy.key_charge} needs a rate. Set key_rate as well."


def _source_faults(policy: QueuePolicy) -> Iterator[str]:
    keys = policy.fairness_key_from
    if isinstance(keys, tuple) and not 1 <= len(keys) <= KEY_DEPTH_MAX:
        yield f"fairness_key_from must name 1 to {KEY_DEPTH_MAX} sources, got {len(keys)}."
    if len(policy.throttles_from) > THROTTLES_MAX:
        yield f"throttles_from may name at most {THROTTLES_MAX} sources, got {len(policy.throttles_from)}."
    single = (policy.weight_from, policy.cost_from, policy.priority_from, policy.cap_from)
    path = keys if isinstance(keys, tuple) else (keys,)
    for source in path:
        if source is not None and not source.startswith("header:") and "{" not in source:
            yield f"fairness_key_from {source!r} is the same for all messages. Use 'header:{source}' for that header."
    sources = [source for source in (*single, *path, *policy.throttles_from) if source is not None]
    if any(source in ("", "header:") or "{}" in source for source in sources):
        yield "A source must name a header: 'header:NAME', or a text with header names in braces."


def _hook_faults(policy: QueuePolicy) -> Iterator[str]:
    for name in ("on_enqueue", "on_failure"):
        script = getattr(policy, name)
        if script is not None and len(script) > SCRIPT_LENGTH_MAX:
            yield f"{name} has at most {SCRIPT_LENGTH_MAX} characters, got {len(script)}."
    for name, least, most in (
        ("hook_timeout_ms", 1, HOOK_TIMEOUT_MS_MAX),
        ("hook_memory_bytes_max", HOOK_MEMORY_BYTES_MIN, HOOK_MEMORY_BYTES_MAX),
        ("hook_breaker_threshold", 1, BATCH_MAX),
        ("hook_breaker_cooldown_ms", HOOK_COOLDOWN_MS_MIN, TIMESPAN_MS_MAX),
    ):
        yield from _range_fault(policy, name, least=least, most=most)


def _range_fault(policy: QueuePolicy, name: str, *, least: int, most: int) -> Iterator[str]:
    value = getattr(policy, name)
    if value is not None and not least <= value <= most:
        yield f"{name} must be an integer from {least} to {most}, got {value}."
