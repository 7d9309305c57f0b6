"""Makes the golden store: a small store of this format with everything in it that a store can hold.

``python tools/make_golden_store.py`` writes ``tests/golden/store-1.tar.gz`` and ``tests/golden/store-1.json``. The
second says what a reader of the first must see. It is written by hand below, from what was asked of the broker; only
ids, fencing tokens and etags are taken from its answers. Every later version must see the same, so make it anew only
with a new format version, under a new name.

Two eras: what is left of the first is known to recovery only through a baseline and carried messages, since the journal
of that time is trimmed; the second is read as it was written.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from fairlead.adapters.rocksdb_engine import FORMAT_VERSION
from fairlead.adapters.rocksdb_store import RocksDbStore
from fairlead.broker.settings import Settings
from fairlead.journal import codec, records
from fairlead.model.message import Delivery, NewMessage
from fairlead.model.policy import QueuePolicy
from fairlead.model.views import DeadLetterFilter
from fairlead.testing.clock import FakeClock
from fairlead.testing.stepped import SteppedBroker

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
SIZE_MAX = 200_000
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


class Maker:
    """Fills a store, and remembers what the broker answered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock = FakeClock(START_MS)
        self.ids: dict[str, str] = {}
        self.tokens: dict[str, int] = {}
        self.etags: dict[str, str | None] = {}

    def make(self) -> bytes:
        """Live through both eras, and return the files as they are before the store is closed: tables and a log."""
        brisk = Settings(segment_events=40, journal_retention_ms=SECOND_MS, reader_hold_ms=SECOND_MS)
        self.broker = SteppedBroker(RocksDbStore(self._folder), clock=self._clock, settings=brisk, carry_floor=20)
        self._first_era()
        self.broker.store.close()
        calm = Settings(segment_events=40)
        self.broker = SteppedBroker(RocksDbStore(self._folder), clock=self._clock, settings=calm)
        self._until(SECOND_ERA_MS)
        self._second_era()
        self._check_kinds()
        archive = packed(self._folder)
        self.broker.store.close()
        return archive

    def _until(self, at_ms: int) -> None:
        self.broker.advance(at_ms - self._clock.now_ms())

    def _put(self, queue: str, name: str, message: NewMessage | None = None) -> None:
        terms = {} if message is None else {field: getattr(message, field) for field in message.__struct_fields__}
        self.ids[name] = self.broker.enqueue(queue, NewMessage(**(terms | {"payload": payload_of(name)})))

    def _take(self, queue: str, name: str, *, visibility_ms: int | None = None, owner: str | None = None) -> Delivery:
        (delivery,) = self.broker.lease(queue, 1, visibility_ms=visibility_ms, owner=owner, with_state=True)
        if delivery.payload != payload_of(name):
            raise AssertionError(f"{name} was to be leased, not {delivery.payload!r}.")
        self.tokens[name] = delivery.token
        return delivery

    def _put_and_take(
        self, queue: str, name: str, *, visibility_ms: int | None = None, owner: str | None = None
    ) -> Delivery:
        self._put(queue, name)
        return self._take(queue, name, visibility_ms=visibility_ms, owner=owner)

    # -------------------------------------------------------------------------------------------------------- first era

    def _first_era(self) -> None:
        broker = self.broker
        brief = ORDERS | {"journal_retention_ms": None}
        for queue, policy in (("orders", brief), ("billing", BILLING), ("temporary", {})):
            broker.create_queue(queue, policy, by="admin")
        for key, value in (("throttle:mail:rate", "5"), ("throttle:mail:burst", "2"), ("gone", "x"), ("tier", "gold")):
            broker.set_config(key, value, by="admin")
        broker.set_reader("slow", 0)
        self._put_and_take("billing", "old leased", visibility_ms=10 * DAY_MS, owner="worker-1")
        broker.nack(self._put_and_take("billing", "old retried"), error="first", delay_ms=0)
        self._until(START_MS + SECOND_MS)
        broker.nack(self._take("billing", "old retried"), delay_ms=0, intent="defer")
        broker.nack(self._take("billing", "old retried"), intent="defer", delay_ms=HOUR_MS)
        broker.nack(self._put_and_take("billing", "old dead"), error="hopeless", intent="dead")
        stateful = self._put_and_take("billing", "old state")
        self.etags["old state"] = broker.set_state(stateful, b"step 1", etag=None)
        broker.nack(stateful, intent="defer", delay_ms=3 * HOUR_MS)
        self._put("billing", "old done", NewMessage(dedup_id="dedup done"))
        broker.ack(self._take("billing", "old done"))
        self._put("billing", "old delayed", NewMessage(delay_ms=2 * HOUR_MS))
        broker.pause("billing", key="slowpoke")
        self._put("billing", "old paused", NewMessage(fairness_key="slowpoke"))
        self._put("billing", "old waiting", OLD_WAITING)
        self._put("orders", "old capped", NewMessage(headers={"tenant": "clinic", "cap": "4"}))
        for _ in range(12):
            self._make_noise()

    def _make_noise(self) -> None:
        """Let the journal grow, so that the base moves on and old segments are trimmed."""
        self.broker.enqueue_many("temporary", [NewMessage(payload=b"noise")] * 10)
        self.broker.ack_many("temporary", self.broker.lease("temporary", 10))
        self.broker.advance(SECOND_MS)

    # ------------------------------------------------------------------------------------------------------- second era

    def _second_era(self) -> None:
        broker = self.broker
        if broker.engine.ledger.base == 1 or broker.engine.ledger.trimmed == 1:
            raise AssertionError("The first era was to be carried and trimmed.")
        broker.create_queue("hooked", HOOKED)
        broker.create_queue("small", SMALL)
        broker.update_queue("orders", ORDERS, by="admin")
        broker.set_config("gone", None, by="admin")
        broker.set_config("throttle:orders/mail:rate", "100")
        self._write_orders()
        self._write_billing()
        self._write_hooked()
        self._write_small()
        self._put("temporary", "purged")
        broker.purge("temporary")
        broker.delete_queue("temporary", by="admin")
        broker.set_reader("etl", broker.engine.ledger.next_sequence - 1)
        broker.set_reader("gone", 0)
        broker.remove_reader("gone")
        broker.pause("small")

    def _write_orders(self) -> None:
        broker = self.broker
        declared = {"tenant": "acme", "app": "web", "weight": "5", "cost": "3", "priority": "high", "cap": "6"}
        self._put("orders", "declared", NewMessage(headers=declared | TRACE))
        self._put("orders", "wished", WISHED)
        self._put("orders", "late", NewMessage(headers={"tenant": "bakery"}, deadline_ms=SECOND_MS))
        self._until(SECOND_ERA_MS + 2 * SECOND_MS)
        done = self._take("orders", "declared", owner="worker-2")
        self.ids["forwarded"] = broker.ack(
            done, cost=9, forward={"billing": [NewMessage(payload=payload_of("forwarded"), delay_ms=DAY_MS)]}
        )[0]

    def _write_billing(self) -> None:
        """Leave one message for each way a lease can go. What could be leased by others is put off for a day."""
        broker = self.broker
        broker.pause("billing", key="acme")
        broker.extend(_leased("billing", self.ids["old leased"], self.tokens["old leased"]), visibility_ms=20 * DAY_MS)
        self._put_and_take("billing", "expired", visibility_ms=100)
        self._until(SECOND_ERA_MS + 3 * SECOND_MS)
        consumer, got = broker.attach("billing", credit=1, owner="worker-3")
        self._put("billing", "released")
        if [delivery.payload for delivery in got] != [payload_of("released")]:
            raise AssertionError("The consumer was to get the message.")
        broker.detach(consumer)
        broker.nack(self._put_and_take("billing", "worn out"), error="once", delay_ms=0)
        broker.nack(self._take("billing", "worn out"), error="twice")
        broker.nack(self._put_and_take("billing", "redriven"), error="please again", intent="dead")
        broker.redrive("billing.dlq", wanted=DeadLetterFilter(error="please"), by="admin")
        broker.nack(self._take("billing", "redriven"), intent="defer", delay_ms=DAY_MS)
        stateless = self._put_and_take("billing", "state removed")
        etag = broker.set_state(stateless, b"brief", etag=None)
        broker.set_state(stateless, None, etag=etag)
        broker.nack(stateless, intent="defer", delay_ms=DAY_MS)
        stateful = self._put_and_take("billing", "state leased", visibility_ms=DAY_MS, owner="worker-4")
        etag = broker.set_state(stateful, b"step 1", etag=None)
        self.etags["state leased"] = broker.set_state(stateful, bytes(range(256)), etag=etag)
        self._put("billing", "cancelled")
        broker.cancel("billing", self.ids["cancelled"])
        self._put("billing", "once", NewMessage(dedup_id="dedup once", delay_ms=DAY_MS))
        self._put("billing", "many bytes", NewMessage(delay_ms=DAY_MS))

    def _write_hooked(self) -> None:
        headers = {"tenant": "acme", "weight": "3", "region": "eu"}
        self._put("hooked", "retried by hook", NewMessage(headers=headers))
        self.broker.nack(self._take("hooked", "retried by hook"), error="try again")
        self._put("hooked", "killed by hook", NewMessage(headers={"tenant": "bakery"}))
        self.broker.nack(self._take("hooked", "killed by hook"), error="fatal")

    def _write_small(self) -> None:
        self._put("small", "too late", NewMessage(deadline_ms=100))
        self._until(SECOND_ERA_MS + 4 * SECOND_MS)
        for name in ("dropped", "kept 1", "kept 2"):
            self._put("small", name)

    def _check_kinds(self) -> None:
        """Check that every kind of record is in the journal that is kept."""
        kinds = {
            type(record).__name__
            for stored in self.broker.store.pages(0)
            for record in codec.decode(stored.page).records
        }
        known = {kind.__name__ for kind in records.AnyRecord.__args__}
        if known - kinds:
            raise AssertionError(f"The store has no {sorted(known - kinds)}.")


def payload_of(name: str) -> bytes:
    """Return the payload of a message: its name, or where that says so many bytes of all values."""
    return bytes(range(256)) * 40 if name == "many bytes" else name.encode()


def _leased(queue: str, message_id: str, token: int) -> Delivery:
    return Delivery(
        id=message_id,
        queue=queue,
        token=token,
        payload=b"",
        headers={},
        fairness_key="",
        attempt=0,
        expires_ms=0,
        enqueued_ms=0,
        correlation_id="",
    )


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


# ---------------------------------------------------------------------------------------- what a reader of it must see


def plain(name: str, queue: str, **more: object) -> dict[str, Any]:
    """Return what a reader sees of a message that nothing was said of, with what else there is."""
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
    """Return what a reader sees of a death."""
    return {"origin": origin, "reason": reason, "at_ms": at_ms}


def messages_seen(maker: Maker) -> dict[str, dict[str, Any]]:
    """Return what a reader sees of each message, by name, at the end of the second era."""
    first, second, tokens, etags = START_MS, SECOND_ERA_MS, maker.tokens, maker.etags
    last = second + 3 * SECOND_MS
    late_death = second + SECOND_MS + 1  # at its deadline a message may still go
    deferred = {"enqueued_ms": last, "status": "delayed", "due_ms": last + DAY_MS}
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
            failures=1,
            errors=[[second + 2 * SECOND_MS + 100, 1, "expiry", "The lease ended."]],
        ),
        "released": plain(
            "released",
            "billing",
            status="delayed",
            enqueued_ms=last,
            due_ms=last + 5_000,
            attempts=1,
            failures=1,
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
        "redriven": plain("redriven", "billing", attempts=1, **deferred),
        "state removed": plain("state removed", "billing", attempts=1, **deferred),
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
        "once": plain("once", "billing", **deferred),
        "many bytes": plain("many bytes", "billing", **deferred),
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
        "kept 1": plain("kept 1", "small", enqueued_ms=last + SECOND_MS),
        "kept 2": plain("kept 2", "small", enqueued_ms=last + SECOND_MS),
    }


def picture_of(maker: Maker) -> dict[str, Any]:
    """Return all that a reader sees at the end of the second era."""
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
        "format": FORMAT_VERSION,
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


# -------------------------------------------------------------------------------------------------------------- packing


def packed(folder: Path) -> bytes:
    """Return the files of a store as an archive, without names, times and logs of this machine."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.name.startswith("LOG") and file.name != "LOCK":
                entry = tarfile.TarInfo(str(file.relative_to(folder)))
                entry.size = file.stat().st_size
                with file.open("rb") as content:
                    archive.addfile(entry, content)
    return buffer.getvalue()


def main() -> None:
    """Make the store and the picture."""
    with tempfile.TemporaryDirectory() as scratch:
        maker = Maker(Path(scratch) / "store")
        archive = maker.make()
    if len(archive) > SIZE_MAX:
        raise SystemExit(f"The archive has {len(archive)} bytes, more than {SIZE_MAX}.")
    GOLDEN.mkdir(exist_ok=True)
    name = f"store-{FORMAT_VERSION}"
    (GOLDEN / f"{name}.tar.gz").write_bytes(archive)
    (GOLDEN / f"{name}.json").write_text(json.dumps(picture_of(maker), indent=1, sort_keys=True) + "\n")
    print(f"tests/golden/{name}: {len(archive)} bytes, {len(maker.ids)} messages enqueued")


if __name__ == "__main__":
    main()
