"""The requests of the simulation's clients: policies, messages and settings, drawn from a seeded generator."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from fairlane.broker.settings import Settings
from fairlane.model.message import Key, NewMessage
from fairlane.model.policy import QueuePolicy
from tests.kit.simulation.hooks import ON_ENQUEUE, ON_FAILURE

QUEUES = ("alpha", "beta", "gamma", "delta")
THROTTLES = ("api", "db", "mail")
TENANTS = 12
_KEY_SOURCES = (None, None, "header:tenant", "team-{tenant}", ("header:tenant", "header:device"))


TEMPLATES = (
    '{"auto_create": true}',
    f'{{"auto_create": true, "policy": {{"max_attempts": 2, "on_enqueue": "{ON_ENQUEUE}"}}}}',
    '{"auto_create": true, "queues_max": 2}',
    '{"policy": {"quantum": 3}}',
    None,
)
"""Templates of new queues, and None to remove one."""


class Workload:
    """Draws requests. Equal generators draw equal requests."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._weights = [1 / rank for rank in range(1, TENANTS + 1)]  # a few tenants are large, most are small
        self._sent = 0
        self._dedup_ids: list[str] = []

    # -------------------------------------------------------------------------------------------------- small things

    def happens(self, likelihood: float) -> bool:
        """Return True with a probability."""
        return self.chance.random() < likelihood

    def one_of(self, *choices: Any) -> Any:
        """Choose an item."""
        return self.chance.choice(choices)

    def span_ms(self, most: int = 20_000) -> int:
        """Draw a timespan, short ones more often."""
        return max(1, int(most ** self.chance.random()))

    def tenant(self) -> str:
        """Draw a tenant; their sizes follow Zipf's law."""
        return f"t{self.chance.choices(range(TENANTS), self._weights)[0]}"

    def key(self) -> Key:
        """Draw a fairness key: flat, nested, or flat in the spelling of nested ones."""
        tenant = self.tenant()
        return self.one_of(tenant, tenant, tenant, (tenant,), (tenant, "web"), (tenant, "app"), (tenant, "app", "ios"))  # type: ignore[no-any-return] # a key

    # -------------------------------------------------------------------------------------------------------- settings

    def settings(self) -> Settings:
        """Draw the broker's settings: mostly small limits, so that housekeeping has work."""
        chance = self.chance
        return Settings(
            payload_bytes_max=5_000,
            waiting_max=self.one_of(None, None, None, 60, 200),
            waiting_bytes_max=self.one_of(None, None, None, 20_000),
            waiters_max=self.one_of(4096, 4096, 6),
            cache_bytes_max=self.one_of(1, 2_000, 1_000_000),
            journal_retention_ms=self.one_of(1_000, 60_000, 3_600_000),
            journal_bytes_max=self.one_of(2_000, 1_000_000),
            reader_hold_ms=self.one_of(5_000, 1_000_000),
            segment_events=chance.choice((20, 100, 1_000)),
            segment_ms=self.one_of(1_000, 60_000, 600_000),
            cycle_events_max=chance.choice((8, 40, 10_000)),
            piece_bytes=self.one_of(10, 60, 1_000),
            cycle_bytes_max=self.one_of(None, 20),
            uploads_max=self.one_of(64, 3),
            upload_silence_ms=self.one_of(2_000, 60_000),
        )

    def policy(self, before: QueuePolicy | None = None) -> QueuePolicy:
        """Draw a queue's policy. The source of caps never changes, so that all messages of a queue agree on it."""
        chance = self.chance
        policy = QueuePolicy(
            visibility_timeout_ms=self.one_of(500, 5_000, 30_000),
            late_ack=self.happens(0.3),
            max_attempts=self.one_of(0, 1, 2, 3, 5),
            max_expiries=self.one_of(0, 0, 1, 3),
            dead_letter_queue=self.one_of(None, None, None, None, "alpha.dlq", "beta.dlq", "gamma", "delta"),
            backoff_ms=self.one_of(0, 100, 1_000),
            backoff_factor=self.one_of(1.0, 2.0, 3.5),
            backoff_max_ms=self.one_of(500, 60_000),
            backoff_jitter=self.one_of(0.0, 0.25, 1.0),
            deadline_ms=self.one_of(None, None, None, 5_000, 60_000),
            deadline_action=self.one_of("drop", "dlq"),
            dedup_window_ms=self.one_of(0, 2_000, 30_000, 300_000),
            fairness_key_from=self.one_of(*_KEY_SOURCES),
            weight_from=self.one_of(None, None, "header:weight"),
            cost_from=self.one_of(None, None, "header:cost"),
            priority_from=self.one_of(None, None, "header:priority"),
            cap_from=self.one_of(None, None, None, "header:cap") if before is None else before.cap_from,
            throttles_from=self.one_of(
                *((), (), ("header:throttle",), ("header:throttle", "db"), ("per-{tenant}",), ("team-{tenant}", "db")),
            ),
            weights={self.tenant(): chance.randint(1, 5)} if self.happens(0.3) else {},
            caps={self.tenant(): chance.randint(0, 3)} if self.happens(0.3) else {},
            quantum=self.one_of(1, 1, 5, 1000),
            strict_priority=self.happens(0.2),
            throttle_scope=self.one_of("shared", "shared", "queue"),
            journal_retention_ms=self.one_of(None, None, 120_000),
            on_enqueue=self.one_of(None, None, ON_ENQUEUE),
            on_failure=self.one_of(None, None, ON_FAILURE),
            key_cap=self.one_of(None, None, None, 1, 3),
            result_ttl_ms=self.one_of(0, 0, 1_500, 20_000),
            **self.one_of({}, {}, {"key_rate": 2.0, "key_burst": 3.0, "key_charge": self.one_of("message", "cost")}),
            **self.one_of({}, {}, {"in_flight_max": chance.randint(0, 6), "key_floor": chance.randint(0, 2)}),
        )
        if self.happens(0.5):
            policy = msgspec.structs.replace(policy, **self._limits())
        return self._in_order(policy) if self.happens(0.4) else policy

    def _in_order(self, policy: QueuePolicy) -> QueuePolicy:
        """Return a policy with strict order, without what contradicts it."""
        pressure = "reject" if policy.backpressure.startswith("drop") else policy.backpressure
        batch_max = self.one_of(1, 2, 5)
        return msgspec.structs.replace(
            policy, order="strict", order_batch_max=batch_max, late_ack=False, backpressure=pressure
        )

    def _limits(self) -> dict[str, Any]:
        return {
            "waiting_max": self.one_of(None, 3, 10, 30),
            "waiting_bytes_max": self.one_of(None, None, 300, 2_000),
            "key_waiting_max": self.one_of(None, None, 2, 8),
            "key_waiting_bytes_max": self.one_of(None, None, None, 200),
            "backpressure": self.one_of("reject", "wait", "wait", "drop_oldest", "drop_newest"),
        }

    # -------------------------------------------------------------------------------------------------------- messages

    def message(self) -> NewMessage:
        """Draw a message with a payload that no other has."""
        self._sent += 1
        filler = b"." * self.one_of(0, 0, 10, 50, self.chance.randint(0, 400))
        fields: dict[str, Any] = {"payload": b"%d:" % self._sent + filler, "headers": self._headers()}
        optional = (
            (0.7, "fairness_key", self.key),
            (0.2, "weight", lambda: self.chance.randint(1, 5)),
            (0.3, "cost", lambda: self.chance.randint(1, 9)),
            (0.3, "priority", lambda: self.one_of("high", "normal", "low")),
            (0.25, "throttles", lambda: tuple(self.chance.sample(THROTTLES, self.chance.randint(1, 2)))),
            (0.15, "delay_ms", self.span_ms),
            (0.12, "deadline_ms", self.span_ms),
            (0.3, "dedup_id", self._dedup_id),
            (0.1, "max_attempts", lambda: self.chance.randint(0, 4)),
            (0.15, "order_key", lambda: self.one_of("x", "y")),
            (0.2, "unique_key", lambda: f"u{self.chance.randint(0, 9)}"),
            (0.1, "visibility_timeout_ms", lambda: self.one_of(300, 5_000, 40_000)),
            (0.1, "result_ttl_ms", lambda: self.one_of(0, 3_000, 60_000)),
            (0.2, "correlation_id", lambda: f"c{self.chance.randint(0, 99)}"),
        )
        for likelihood, name, draw in optional:
            if self.happens(likelihood):
                fields[name] = draw()
        return NewMessage(**fields)

    def unsound_message(self) -> NewMessage:
        """Draw a message that must be rejected."""
        fault: dict[str, Any] = self.one_of(
            {"priority": "urgent"},
            {"weight": 0},
            {"cost": -1},
            {"delay_ms": -5},
            {"payload": b"x" * 6_000},
            {"headers": {"a": 1}},
            {"fairness_key": ()},
            {"dedup_id": ""},
            {"throttles": ("",)},
        )
        return msgspec.structs.replace(self.message(), **fault)

    def messages(self) -> list[NewMessage]:
        """Draw a batch, now and then of messages that are kept in order with each other."""
        found = [self.message() for _ in range(self.one_of(1, 1, 1, 2, 5, self.chance.randint(1, 15)))]
        if not self.happens(0.25):
            return found
        first = found[0]
        alike = {"headers": first.headers, "fairness_key": first.fairness_key, "order_key": first.order_key}
        return [msgspec.structs.replace(message, **alike, throttles=first.throttles) for message in found]

    def _headers(self) -> dict[str, str]:
        headers = {"cap": "2"}
        optional = (
            (0.7, "tenant", self.tenant),
            (0.4, "device", lambda: self.one_of("web", "app")),
            (0.3, "weight", lambda: self.one_of("1", "4", "-3", "many")),
            (0.3, "cost", lambda: self.one_of("1", "7", "0", "2x")),
            (0.3, "priority", lambda: self.one_of("high", "low", "2", "urgent")),
            (0.3, "throttle", lambda: self.one_of(*THROTTLES)),
        )
        for likelihood, name, draw in optional:
            if self.happens(likelihood):
                headers[name] = draw()
        return headers

    def _dedup_id(self) -> str:
        if self._dedup_ids and self.happens(0.4):
            return self.chance.choice(self._dedup_ids[-20:])
        self._dedup_ids.append(f"d{len(self._dedup_ids)}")
        return self._dedup_ids[-1]

    # ---------------------------------------------------------------------------------------------------------- config

    def setting(self) -> tuple[str, str | None]:
        """Draw a change of config: a throttle, a weight, a cap, or something else."""
        queue, tenant = self.one_of(*QUEUES), self.tenant()
        bucket = self.one_of(*THROTTLES, *THROTTLES, f"{queue}/{self.one_of(*THROTTLES)}", f"per-{tenant}")
        key, values = self.one_of(
            (f"throttle:{bucket}:rate", ("0", "0.5", "2", "10", "100", None)),
            (f"throttle:{bucket}:rate", ("0.2", "1", "5", None)),
            (f"throttle:{bucket}:burst", ("1", "3", "20", None)),
            (f"floor:{queue}:{tenant}", ("0", "1", "3", None)),
            (f"throttle:{bucket}:charge", ("cost", "cost", "message", None)),
            (f"weight:{queue}:{self.one_of(tenant, tenant + '/app')}", ("1", "3", "10", None)),
            (f"cap:{queue}:{self.one_of('*', tenant, tenant + '/app', tenant + '/app/ios')}", ("0", "1", "2", None)),
            ("throttle:team-*:rate", ("2", "2", None)),
            (f"note:{tenant}", ("x", "y", None)),
            (f"queue_template:{self.one_of(queue, queue[0] + '*', '*')}", TEMPLATES),
        )
        return key, self.chance.choice(values)
