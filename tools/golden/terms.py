"""The requests to the broker: their times, policies and messages."""

from __future__ import annotations

from typing import Any

from fairlane.model.message import NewMessage

START_MS = 1_700_000_000_000
SECOND_MS = 1_000
HOUR_MS = 3_600 * SECOND_MS
DAY_MS = 24 * HOUR_MS
SECOND_ERA_MS = START_MS + 60 * SECOND_MS
TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
ON_ENQUEUE = """
function on_enqueue(msg)
  return {
    fairness_key = msg.headers["tenant"] or "default",
    weight = tonumber(msg.headers["weight"]) or 1,
    throttle_keys = { "region:" .. (msg.headers["region"] or "none") },
    cost = 2,
  }
end
"""
ON_FAILURE = """
function on_failure(msg)
  if msg.error == "fatal" then
    return { action = "dlq" }
  end
  return { action = "retry", delay_ms = 7000 }
end
"""
ORDERS: dict[str, Any] = {
    "visibility_timeout_ms": 45_000,
    "max_attempts": 3,
    "backoff_ms": 2_000,
    "backoff_factor": 3.0,
    "backoff_max_ms": 60_000,
    "backoff_jitter": 0.0,
    "deadline_ms": 30 * DAY_MS,
    "deadline_action": "dlq",
    "waiting_max": 1_000,
    "waiting_bytes_max": 1_000_000,
    "key_waiting_max": 500,
    "key_waiting_bytes_max": 500_000,
    "backpressure": "wait",
    "dedup_window_ms": 30 * DAY_MS,
    "on_enqueue": None,
    "on_failure": None,
    "fairness_key_from": ["header:tenant", "header:app"],
    "weight_from": "header:weight",
    "cost_from": "header:cost",
    "priority_from": "header:priority",
    "cap_from": "header:cap",
    "throttles_from": ["mail", "tenant:{tenant}"],
    "weights": {"acme": 4, "acme/web": 2},
    "caps": {"acme": 50},
    "quantum": 2,
    "strict_priority": True,
    "throttle_scope": "queue",
    "journal_retention_ms": 2 * DAY_MS,
}
BILLING: dict[str, Any] = {
    "visibility_timeout_ms": 30_000,
    "max_attempts": 2,
    "backoff_ms": 5_000,
    "backoff_jitter": 0.0,
    "dedup_window_ms": 30 * DAY_MS,
}
HOOKED: dict[str, Any] = {"on_enqueue": ON_ENQUEUE, "on_failure": ON_FAILURE}
SMALL: dict[str, Any] = {"waiting_max": 2, "backpressure": "drop_oldest"}
OLD_WAITING = NewMessage(
    headers={"lang": "de", **TRACE},
    fairness_key=("acme", "mobile"),
    weight=3,
    cost=7,
    priority="high",
    throttles=("mail", "all"),
    deadline_ms=30 * DAY_MS,
    dedup_id="dedup waiting",
    correlation_id="correlation-1",
)
WISHED = NewMessage(fairness_key="bakery", weight=2, cost=4, priority="low", throttles=("post",))


def payload_of(name: str) -> bytes:
    """Return the payload of a message: its name, or as many bytes of all values as the name says."""
    return bytes(range(256)) * 40 if name == "many bytes" else name.encode()
