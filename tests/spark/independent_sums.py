"""The sums of the tables, found again with pandas and plain Python from an exported journal.

This is a second implementation on purpose: it shares no code with the tables and follows each message event by event,
so that an error in the one is not in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

HOUR = 3_600_000
Paused = Callable[[str, tuple[str, ...], int, int], int]
"""Returns for how long a queue or key was paused between two instants."""


@dataclass(slots=True)
class Life:
    """A message while its events are followed."""

    queue: str
    key: tuple[str, ...]
    cost: int
    size: int
    deadline_ms: int | None
    throttles: tuple[str, ...]
    begun_ms: int
    due_ms: int | None
    retries: bool = False
    leased_ms: int | None = None
    outcome: str = "waiting"

    @property
    def ready_ms(self) -> int:
        return self.begun_ms if self.due_ms is None else max(self.begun_ms, self.due_ms)


@dataclass(slots=True)
class Sums:
    """All that a journal tells, as facts: a tenant, a queue, an hour, a measure and a value each."""

    paused: Paused
    facts: list[dict[str, Any]] = field(default_factory=list)
    lives: dict[str, Life] = field(default_factory=dict)

    def follow(self, journal: Path) -> pd.DataFrame:
        """Return the facts of an exported journal."""
        files = sorted(journal.glob("*.parquet"))
        events = pd.concat([pd.read_parquet(path) for path in files]).sort_values("sequence")
        for event in events.astype(object).where(events.notna(), None).to_dict("records"):
            follow = getattr(self, f"_{event['kind']}", None)
            if follow is not None:
                follow(event)
        return pd.DataFrame(self.facts)

    def _note(self, life: Life, at_ms: int, **values: int) -> None:
        if life.queue.endswith(".dlq"):
            return
        place = {"queue": life.queue, "key": "/".join(life.key), "tenant": life.key[0], "hour_ms": at_ms // HOUR * HOUR}
        self.facts += [{**place, "measure": name, "value": value} for name, value in values.items()]

    def _enqueued(self, event: dict[str, Any]) -> None:
        life = self.lives[event["message_id"]] = Life(
            queue=event["queue"],
            key=tuple(event["fairness_key"]),
            cost=int(event["cost"]),
            size=int(event["size_bytes"]),
            deadline_ms=_whole(event["deadline_ms"]),
            throttles=tuple(_listed(event["throttles"])),
            begun_ms=int(event["at_ms"]),
            due_ms=_whole(event["due_ms"]),
        )
        self._note(life, event["at_ms"], enqueued=1, enqueued_bytes=life.size, enqueued_cost=life.cost)

    def _leased(self, event: dict[str, Any]) -> None:
        life, at_ms = self.lives[event["message_id"]], int(event["at_ms"])
        life.leased_ms, life.outcome = at_ms, "leased"
        wait_ms = max(0, at_ms - life.ready_ms)
        before_ms = min(life.ready_ms, at_ms) - life.begun_ms
        reasons = {"backoff_ms" if life.retries else "delayed_ms": before_ms}
        left = wait_ms
        for name in ("paused_ms", "throttled_ms", "capped_ms"):
            reasons[name] = min(_whole(event[name]) or 0, left)
            left -= reasons[name]
        self._note(life, at_ms, leased=1, served_cost=life.cost, wait_ms=wait_ms, turn_ms=left, **reasons)
        if not life.throttles and life.key[0] != "beta":  # beta has a cap, which may hold at the same time
            self._note(life, at_ms, paused_by_operator_ms=self.paused(life.queue, life.key, life.ready_ms, at_ms))
            self._note(life, at_ms, paused_of_plain_ms=reasons["paused_ms"])
        for _ in life.throttles:
            self._note(life, at_ms, throttle_leases=1, throttle_ms=reasons["throttled_ms"])
            self._note(life, at_ms, throttle_waited=int(reasons["throttled_ms"] > 0))

    def _ends_lease(self, life: Life, event: dict[str, Any], *, failed: bool) -> None:
        if life.leased_ms is not None:
            self._note(life, event["at_ms"], service_ms=int(event["at_ms"]) - life.leased_ms, served=1)
        if failed:
            self._note(life, event["at_ms"], failed=1)
        life.leased_ms = None

    def _decided(self, life: Life, event: dict[str, Any], outcome: str) -> None:
        if life.deadline_ms is not None:
            self._note(life, event["at_ms"], with_deadline=1, **{outcome: 1})

    def _acked(self, event: dict[str, Any]) -> None:
        life = self.lives[event["message_id"]]
        self._ends_lease(life, event, failed=False)
        true = _whole(event["cost"])
        cost = life.cost if true is None else true
        self._note(life, event["at_ms"], acked=1, acked_bytes=life.size, cost_estimated=life.cost, cost_true=cost)
        self._decided(life, event, "met" if event["at_ms"] <= (life.deadline_ms or 0) else "late")
        life.outcome = "acked"

    def _removed(self, event: dict[str, Any]) -> None:
        life = self.lives[event["message_id"]]
        self._ends_lease(life, event, failed=False)
        self._note(life, event["at_ms"], removed=1)
        self._decided(life, event, "missed" if event["reason"] == "deadline" else "otherwise")
        life.outcome = "removed"

    def _returned(self, event: dict[str, Any]) -> None:
        life, is_retry = self.lives[event["message_id"]], event["reason"] != "defer"
        self._ends_lease(life, event, failed=event["reason"] == "failure")
        life.begun_ms, life.due_ms = int(event["at_ms"]), _whole(event["due_ms"])
        life.retries, life.outcome = is_retry, "waiting"

    def _dead(self, event: dict[str, Any]) -> None:
        life = self.lives[event["message_id"]]
        self._ends_lease(life, event, failed=event["ended"] == "failure")
        self._note(life, event["at_ms"], dead=1)
        self._note(life, event["at_ms"], **{f"dead_{event['reason']}": 1})
        self._decided(life, event, "missed" if event["reason"] == "deadline" else "otherwise")
        life.queue, life.begun_ms, life.due_ms = event["target"], int(event["at_ms"]), None
        life.retries, life.outcome = False, "dead"
        self._note(life, event["at_ms"], redriven=1)  # unless it came to an ordinary queue, this counts nowhere

    def _redriven(self, event: dict[str, Any]) -> None:
        life = self.lives[event["message_id"]]
        self._note(life, event["at_ms"], removed=1)
        life.queue, life.begun_ms, life.due_ms = event["target"], int(event["at_ms"]), _whole(event["due_ms"])
        life.key, life.cost, life.deadline_ms = (
            tuple(event["fairness_key"]),
            int(event["cost"]),
            _whole(event["deadline_ms"]),
        )
        life.throttles, life.retries, life.outcome = tuple(_listed(event["throttles"])), False, "waiting"
        self._note(life, event["at_ms"], redriven=1)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _listed(value: Iterable[str] | None) -> Iterable[str]:
    return () if value is None else value
