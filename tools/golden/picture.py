"""What a reader must see of the whole store."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.adapters.folder.mark import ROCKSDB
from fairlane.journal import records
from fairlane.model.policy import QueuePolicy
from golden.eras import Maker
from golden.sights import messages_seen
from golden.terms import BILLING, HOOKED, ORDERS, SECOND_ERA_MS, SECOND_MS, SMALL, START_MS, payload_of


def picture_of(maker: Maker) -> dict[str, Any]:
    """Return everything that a reader sees at the end of the second era."""
    messages = messages_seen(maker)
    for name, sight in messages.items():
        sight["id"] = maker.ids[name]
        sight["payload"] = payload_of(name).hex()
        sight["correlation_id"] = sight["correlation_id"] or maker.ids[name]
    defaults = msgspec.to_builtins(QueuePolicy())
    dlq = defaults | {"max_attempts": 0}
    policies = {
        "billing": defaults | BILLING,
        "billing.dlq": dlq,
        "hooked": defaults | HOOKED,
        "hooked.dlq": dlq,
        "orders": ORDERS,
        "orders.dlq": dlq | {"visibility_timeout_ms": 45_000},
        "small": defaults | SMALL,
        "small.dlq": dlq,
    }
    paused: dict[str, list[str]] = {"billing": ["acme", "slowpoke"]}
    return {
        "format": ROCKSDB.version,
        "at_ms": SECOND_ERA_MS + 4 * SECOND_MS,
        "queues": {
            queue: {
                "policy": policy,
                "created_ms": SECOND_ERA_MS if queue.startswith(("hooked", "small")) else START_MS,
                "is_paused": queue == "small",
                "paused_keys": paused.get(queue, []),
            }
            for queue, policy in policies.items()
        },
        "messages": list(messages.values()),
        "gone": {name: maker.ids[name] for name in ("old done", "declared", "cancelled", "purged", "dropped")},
        "dedup_ids": {
            "dedup done": maker.ids["old done"],
            "dedup waiting": maker.ids["old waiting"],
            "dedup once": maker.ids["once"],
        },
        "config": {
            "throttle:mail:burst": "2",
            "throttle:mail:rate": "5",
            "throttle:orders/mail:rate": "100",
            "tier": "gold",
        },
        "readers": ["etl", "slow"],
        "passed_readers": ["slow"],
        "kinds": sorted(kind.__name__ for kind in records.AnyRecord.__args__),
    }
