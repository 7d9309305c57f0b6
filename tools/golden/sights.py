"""What a reader must see of each message at the end of the second era, written down by hand."""

from __future__ import annotations

from typing import Any

from golden.eras import Maker
from golden.terms import DAY_MS, HOUR_MS, SECOND_ERA_MS, SECOND_MS, START_MS, TRACE, payload_of

_LAST_MS = SECOND_ERA_MS + 3 * SECOND_MS
_DEFERRED: dict[str, Any] = {"enqueued_ms": _LAST_MS, "status": "delayed", "due_ms": _LAST_MS + DAY_MS}


def messages_seen(maker: Maker) -> dict[str, dict[str, Any]]:
    """Return what a reader sees of each message, by name."""
    return _left_by_first_era(maker) | _in_orders() | _in_billing(maker) | _in_hooked() | _in_small()


def plain(name: str, queue: str, **more: object) -> dict[str, Any]:
    """Return what a reader sees of a plain message, updated with the given fields."""
    sight: dict[str, Any] = {
        "queue": queue,
        "status": "waiting",
        "fairness_key": "default",
        "weight": 1,
        "cost": 1,
        "priority": "normal",
        "throttles": [],
        "enqueued_ms": SECOND_ERA_MS,
        "due_ms": None,
        "deadline_ms": None,
        "size": len(payload_of(name)),
        "attempts": 0,
        "failures": 0,
        "errors": [],
        "dead": None,
        "token": None,
        "owner": None,
        "expires_ms": None,
        "headers": {},
        "correlation_id": None,
        "state": None,
        "state_etag": None,
    }
    if more.keys() - sight.keys():
        raise AssertionError(f"A message has no {sorted(more.keys() - sight.keys())}.")
    return sight | more


def dead(origin: str, reason: str, at_ms: int) -> dict[str, Any]:
    """Return what a reader sees of a dead letter."""
    return {"origin": origin, "reason": reason, "at_ms": at_ms}


def _left_by_first_era(maker: Maker) -> dict[str, dict[str, Any]]:
    first, second, tokens, etags = START_MS, SECOND_ERA_MS, maker.tokens, maker.etags
    return {
        "old leased": plain(
            "old leased",
            "billing",
            status="leased",
            enqueued_ms=first,
            attempts=1,
            token=tokens["old leased"],
            owner="worker-1",
            expires_ms=second + 2 * SECOND_MS + 20 * DAY_MS,
        ),
        "old retried": plain(
            "old retried",
            "billing",
            status="delayed",
            enqueued_ms=first,
            due_ms=first + SECOND_MS + HOUR_MS,
            attempts=3,
            failures=1,
            errors=[[first, 1, "failure", "first"]],
        ),
        "old dead": plain(
            "old dead",
            "billing.dlq",
            enqueued_ms=first + SECOND_MS,
            attempts=1,
            failures=1,
            errors=[[first + SECOND_MS, 1, "failure", "hopeless"]],
            dead=dead("billing", "requested", first + SECOND_MS),
        ),
        "old state": plain(
            "old state",
            "billing",
            status="delayed",
            enqueued_ms=first + SECOND_MS,
            due_ms=first + SECOND_MS + 3 * HOUR_MS,
            attempts=1,
            state=b"step 1".hex(),
            state_etag=etags["old state"],
        ),
        "old delayed": plain(
            "old delayed",
            "billing",
            status="delayed",
            enqueued_ms=first + SECOND_MS,
            due_ms=first + SECOND_MS + 2 * HOUR_MS,
        ),
        "old paused": plain("old paused", "billing", enqueued_ms=first + SECOND_MS, fairness_key="slowpoke"),
        "old waiting": plain(
            "old waiting",
            "billing",
            enqueued_ms=first + SECOND_MS,
            fairness_key=["acme", "mobile"],
            weight=3,
            cost=7,
            priority="high",
            throttles=["all", "mail"],
            deadline_ms=first + SECOND_MS + 30 * DAY_MS,
            headers={"lang": "de", **TRACE},
            correlation_id="correlation-1",
        ),
        "old capped": plain(
            "old capped",
            "orders",
            enqueued_ms=first + SECOND_MS,
            fairness_key="clinic",
            throttles=["orders/mail", "orders/tenant:clinic"],
            deadline_ms=first + SECOND_MS + 30 * DAY_MS,
            headers={"tenant": "clinic", "cap": "4"},
        ),
    }


def _in_orders() -> dict[str, dict[str, Any]]:
    late_death = SECOND_ERA_MS + SECOND_MS + 1  # at its deadline a message may still go
    second = SECOND_ERA_MS
    return {
        "wished": plain(
            "wished",
            "orders",
            fairness_key="bakery",
            weight=2,
            cost=4,
            priority="low",
            throttles=["orders/mail", "orders/post"],
            deadline_ms=second + 30 * DAY_MS,
        ),
        "late": plain(
            "late",
            "orders.dlq",
            fairness_key="bakery",
            throttles=["orders/mail", "orders/tenant:bakery"],
            headers={"tenant": "bakery"},
            dead=dead("orders", "deadline", late_death),
        ),
    }


def _in_billing(maker: Maker) -> dict[str, dict[str, Any]]:
    second, last, tokens, etags = SECOND_ERA_MS, _LAST_MS, maker.tokens, maker.etags
    return {
        "forwarded": plain(
            "forwarded",
            "billing",
            status="delayed",
            enqueued_ms=second + 2 * SECOND_MS,
            due_ms=second + 2 * SECOND_MS + DAY_MS,
        ),
        "expired": plain(
            "expired",
            "billing",
            status="delayed",
            enqueued_ms=second + 2 * SECOND_MS,
            due_ms=second + 2 * SECOND_MS + 100 + 5_000,
            attempts=1,
            failures=0,
            errors=[[second + 2 * SECOND_MS + 100, 1, "expiry", "The lease ended."]],
        ),
        "released": plain(
            "released",
            "billing",
            status="delayed",
            enqueued_ms=last,
            due_ms=last + 5_000,
            attempts=1,
            failures=0,
            errors=[[last, 1, "release", "The consumer went away."]],
        ),
        "worn out": plain(
            "worn out",
            "billing.dlq",
            enqueued_ms=last,
            attempts=2,
            failures=2,
            errors=[[last, 1, "failure", "once"], [last, 2, "failure", "twice"]],
            dead=dead("billing", "max_attempts", last),
        ),
        "redriven": plain("redriven", "billing", attempts=1, **_DEFERRED),
        "state removed": plain("state removed", "billing", attempts=1, **_DEFERRED),
        "state leased": plain(
            "state leased",
            "billing",
            status="leased",
            enqueued_ms=last,
            attempts=1,
            token=tokens["state leased"],
            owner="worker-4",
            expires_ms=last + DAY_MS,
            state=bytes(range(256)).hex(),
            state_etag=etags["state leased"],
        ),
        "once": plain("once", "billing", **_DEFERRED),
        "many bytes": plain("many bytes", "billing", **_DEFERRED),
    }


def _in_hooked() -> dict[str, dict[str, Any]]:
    last = _LAST_MS
    return {
        "retried by hook": plain(
            "retried by hook",
            "hooked",
            status="delayed",
            enqueued_ms=last,
            due_ms=last + 7_000,
            fairness_key="acme",
            weight=3,
            cost=2,
            throttles=["region:eu"],
            headers={"tenant": "acme", "weight": "3", "region": "eu"},
            attempts=1,
            failures=1,
            errors=[[last, 1, "failure", "try again"]],
        ),
        "killed by hook": plain(
            "killed by hook",
            "hooked.dlq",
            enqueued_ms=last,
            fairness_key="bakery",
            cost=2,
            throttles=["region:none"],
            headers={"tenant": "bakery"},
            attempts=1,
            failures=1,
            errors=[[last, 1, "failure", "fatal"]],
            dead=dead("hooked", "hook", last),
        ),
    }


def _in_small() -> dict[str, dict[str, Any]]:
    return {
        "kept 1": plain("kept 1", "small", enqueued_ms=_LAST_MS + SECOND_MS),
        "kept 2": plain("kept 2", "small", enqueued_ms=_LAST_MS + SECOND_MS),
    }
