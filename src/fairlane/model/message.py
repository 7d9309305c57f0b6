"""Messages, as producers send them and consumers get them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

import msgspec

from fairlane.model.bounds import Headers, RequestKey, Throttles

Key = str | tuple[str, ...]
"""A fairness key: a name, or a path of names such as ``("acme", "mobile")``."""

DEFAULT_KEY = "default"
"""The fairness key of a message without one."""

NEVER_MS = 253_402_300_799_000
"""The expiry of a lease without a timeout, which registered consumers have: the last second of the year 9999."""


def canonical(key: Key) -> Key:
    """Return the canonical form of a key: a path of one name is that name."""
    return key[0] if type(key) is tuple and len(key) == 1 else key


def key_of(path: Sequence[str]) -> Key:
    """Return the key of a path of names, in its canonical form."""
    return path[0] if len(path) == 1 else tuple(path)


def key_text(key: Key) -> str:
    """Return a key as people write it: ``acme`` or ``acme/mobile``."""
    return key if isinstance(key, str) else "/".join(key)


PriorityName = Literal["high", "normal", "low"]
PRIORITY_NAMES: tuple[PriorityName, ...] = ("high", "normal", "low")
"""The names of the priorities, by number."""


class NewMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A message as a producer sends it. Fields that are None are decided by the queue's policy.

    Attributes:
        payload: opaque bytes.
        headers: text by name; policies and hooks see these, never the payload.
        fairness_key: the tenant that the message is for; shares are fair between keys.
        weight: the share of its key relative to others, from 1 to 1000.
        cost: what serving it takes from its key's share, an integer of at least 1.
        priority: its rank among the messages of its own key.
        throttles: names of the token buckets that must all have a token before it goes.
        delay_ms: how long from now it may not be handed out.
        deadline_ms: how long from now it may be handed out.
        dedup_id: a second message of the same tenant with the same one, within the queue's window, is not enqueued; the
            id of the first is returned.
        correlation_id: travels with the message through retries and dead letters; the message's own id by default.
        max_attempts: failed attempts before it goes to the dead-letter queue, instead of the queue's; 0 for no limit.
        visibility_timeout_ms: how long its leases last, instead of the queue's visibility timeout. A consumer that
            requests another timeout overrides both.
        result_ttl_ms: how long its result and its end are kept, instead of the queue's ``result_ttl_ms``; 0 for not at
            all.
        upload: the upload that has its payload, instead of ``payload``.
        order_key: in a queue with strict order, what the message is kept in order with: the messages of the same
            fairness key that have the same one. By default all of the fairness key that have none.
        unique_key: while a message of the same tenant with the same one waits, is delayed or is leased in the queue,
            another is not enqueued; the id of the first is returned.
    """

    payload: bytes = b""
    headers: Headers = {}
    fairness_key: RequestKey | None = None
    weight: int | None = None
    cost: int | None = None
    priority: PriorityName | None = None
    throttles: Throttles = ()
    delay_ms: int = 0
    deadline_ms: int | None = None
    dedup_id: str | None = None
    correlation_id: str | None = None
    max_attempts: int | None = None
    visibility_timeout_ms: int | None = None
    result_ttl_ms: int | None = None
    upload: str | None = None
    order_key: str | None = None
    unique_key: str | None = None


class MessageTerms(TypedDict, total=False):
    """The fields of ``NewMessage`` besides the payload, as keyword arguments."""

    headers: Mapping[str, str]
    fairness_key: Key | None
    weight: int | None
    cost: int | None
    priority: PriorityName | None
    throttles: tuple[str, ...]
    delay_ms: int
    deadline_ms: int | None
    dedup_id: str | None
    correlation_id: str | None
    max_attempts: int | None
    visibility_timeout_ms: int | None
    result_ttl_ms: int | None
    order_key: str | None
    unique_key: str | None


class FailureDetail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where and how an attempt failed, for the people who correct it.

    Attributes:
        traceback: the stack at the failure; the broker keeps its end, and only that of the latest attempt.
        worker: the consumer that had the message.
        host: the machine that it ran on.
    """

    traceback: str = ""
    worker: str = ""
    host: str = ""


class FailedAttempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error of one attempt that failed or was lost."""

    at_ms: int
    attempt: int
    reason: str
    """``failure``, or ``expiry`` or ``release`` for an attempt that was lost."""
    error: str
    detail: FailureDetail | None = None
    """Where and how it failed, if the consumer said so."""


def errors_bytes(errors: Sequence[FailedAttempt]) -> int:
    """Return how many bytes of text errors have, about."""
    details = [attempt.detail for attempt in errors if attempt.detail is not None]
    return sum([len(attempt.error) for attempt in errors]) + sum([len(detail.traceback) for detail in details])


class DeadLetterOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a dead letter: its queue, and why and when it died."""

    origin: str
    reason: str
    """``max_attempts``, ``max_expiries``, ``hook``, ``deadline``, ``requested`` or ``members``."""
    at_ms: int


class Delivery(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A leased message. ``id`` and ``token`` together are the right to ack, nack, extend or write its state.

    Attributes:
        token: the fencing token of the lease; each later lease in the queue, or in its partition if the queue is split,
            has a greater one.
        expires_ms: when the lease ends unless extended; ``NEVER_MS`` under a claim.
        attempt: the number of this delivery, from 1.
        failures: how many attempts have failed before; expired leases are not among them.
        state: the workflow state, if it was requested and exists.
        state_etag: the version of the state; None if there is no state.
        errors: the latest attempts that failed or were lost.
        dead: its origin, if it was leased from a dead-letter queue.
        deadline_ms: the instant after which its handler should not start, by the broker's clock; None for never.
        time_left_ms: how long that was from now when the broker handed the message over. Count it from the receipt:
            the clocks of broker and consumer may differ. None under a claim.
        payload_size: the size of a payload that was uploaded and is larger than ``payload_bytes_max``. ``payload`` is
            empty then: read it with ``read_payload``. None for a payload that is here.
        order_key: what it is kept in order with, within its fairness key, if its producer said so.
    """

    id: str
    queue: str
    token: int
    payload: bytes
    headers: dict[str, str]
    fairness_key: Key
    attempt: int
    expires_ms: int
    enqueued_ms: int
    correlation_id: str
    cost: int = 1
    priority: PriorityName = "normal"
    failures: int = 0
    state: bytes | None = None
    state_etag: str | None = None
    errors: tuple[FailedAttempt, ...] = ()
    dead: DeadLetterOrigin | None = None
    deadline_ms: int | None = None
    time_left_ms: int | None = None
    payload_size: int | None = None
    order_key: str | None = None


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The right to settle a leased message, without the message itself.

    Attributes:
        id: the message.
        token: the fencing token of its lease.
        cost: for an acknowledgement, what the message actually cost.
        result: for an acknowledgement, the result, which is kept for the message's ``result_ttl_ms``.
    """

    id: str
    token: int
    cost: int | None = None
    result: bytes | None = None


MessageStatus = Literal["waiting", "delayed", "leased"]

Became = Literal["waiting", "delayed", "dead", "expired"]
"""What became of a returned message: it waits for its turn, or for a delay or backoff first; it is a dead letter; or
its deadline has passed, so that the queue's ``deadline_action`` applies.
"""


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """A message as an observer sees it, without leasing it. ``payload`` and ``headers`` are set only if requested.
    ``payload`` is not set if it was uploaded and is larger than ``payload_bytes_max``: read it with ``read_payload``.

    It names the owner of a lease and when that ends, but not the fencing token, which would settle the lease.
    """

    id: str
    queue: str
    status: MessageStatus
    fairness_key: Key
    weight: int
    cost: int
    priority: PriorityName
    throttles: tuple[str, ...]
    enqueued_ms: int
    due_ms: int | None
    deadline_ms: int | None
    size: int
    attempts: int
    failures: int
    errors: tuple[FailedAttempt, ...] = ()
    dead: DeadLetterOrigin | None = None
    owner: str | None = None
    expires_ms: int | None = None
    state_etag: str | None = None
    payload: bytes | None = None
    headers: dict[str, str] | None = None
    correlation_id: str | None = None
    claim: int | None = None
    """The number of the claim of its owner, a registered consumer, under which it is leased."""
    max_attempts: int | None = None
    """Its own limit of failed attempts, if it has one."""
    visibility_timeout_ms: int | None = None
    """Its own visibility timeout, if it has one."""
    order_key: str | None = None
    unique_key: str | None = None
    """The name that no other message of its tenant in the queue can have while it is not done."""
