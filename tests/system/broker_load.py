"""A broker under load, to be killed: ``python -m tests.system.broker_load <store> <log> <errands> <life>``.

It keeps a log outside the store: a line before each call says what is asked, a line after it what was answered. Lines
go straight to the operating system, so they outlive the process. After each answer a byte goes to standard output,
which lets the parent wait for progress.

At first it opens the store, writes down all it finds there, and runs the parent's errands: receipts of earlier lives
and dedup ids that were used before.
"""

from __future__ import annotations

import faulthandler
import hashlib
import itertools
import json
import os
import random
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.adapters.system import SystemClock, SystemEntropy
from fairlane.assembly import open_store
from fairlane.broker.engine.engine import Engine
from fairlane.broker.frontends.threads import Broker
from fairlane.broker.settings import Settings
from fairlane.errors import FairlaneError, MessageNotFound
from fairlane.model.ids import number_in
from fairlane.model.message import Delivery, MessageView, NewMessage, Receipt
from fairlane.model.policy import QueuePolicy
from tests.system.wrong_clock import skew

QUEUES = ("orders", "shipping")
ALL_QUEUES = tuple(name for queue in QUEUES for name in (queue, f"{queue}.dlq"))
TENANTS = ("acme", "bakery", "clinic", ("depot", "north"), ("depot", "south"))
POLICY = QueuePolicy(
    visibility_timeout_ms=1_500,
    max_attempts=3,
    backoff_ms=10,
    backoff_max_ms=40,
    waiting_max=300,
    backpressure="wait",
    dedup_window_ms=3_600_000,  # dedup ids of the first process are repeated by the last, however slow the machine is
)
SETTINGS = Settings(segment_events=1_000, journal_retention_ms=1_000)
CARRY_FLOOR = 1_000
"""The base moves after this many events: far fewer than usual, so that many kills happen in the middle of it."""
PRODUCERS = 3
CONSUMERS = 4
SURVEY_MAX = 10_000
Fields = dict[str, Any]
RECEIPT_VERBS = ("ack", "nack", "extend", "state")


def payload_of(name: str) -> bytes:
    """Return the payload for a message name, so that damage can be detected."""
    digest = hashlib.sha256(name.encode()).digest()
    return name.encode() + b"|" + digest * (digest[0] % 60)


def name_in(payload: bytes | None) -> str:
    """Return the name of a message, or an invalid name if its payload is damaged."""
    name = (payload or b"").partition(b"|")[0].decode(errors="replace")
    return name if payload == payload_of(name) else f"damaged {payload!r:.60}"


def outcome_of(result: object) -> object:
    """Return a result in its logged form: an error is its code after an exclamation mark."""
    return f"!{result.code}" if isinstance(result, FairlaneError) else result


class CallLog:
    """Logs requests and answers immediately, in whole lines."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._numbers = itertools.count(1)
        self._clock = SystemClock()
        self._now_ms = self._clock.now_ms

    def follow(self, engine: Engine) -> None:
        """Use the time of a broker: leases end by that, and not by the wall clock."""
        self._now_ms = engine.now_ms

    def _write(self, **fields: Any) -> None:
        since, ms, until = self._clock.monotonic_ms(), self._now_ms(), self._clock.monotonic_ms()
        times = {"ms": ms, "since": since, "until": until, "wall": self._clock.now_ms()}
        os.write(self._file, json.dumps(fields | times).encode() + b"\n")

    def call(self, verb: str, ask: Callable[[], Fields], **asked: Any) -> Fields:
        """Make a call, with a line before and one after; an error is an answer too."""
        number = next(self._numbers)
        self._write(n=number, do=verb, **asked)
        try:
            answered = ask()
        except FairlaneError as error:
            answered = {"error": error.code, "text": str(error)}
        self._write(of=number, **answered)
        os.write(sys.stdout.fileno(), b".")
        return answered

    def panic(self) -> None:
        """Log an event that must not happen."""
        self._write(n=next(self._numbers), do="panic", text=traceback.format_exc())


class Hand:
    """The calls of one thread. Every call is logged."""

    def __init__(self, broker: Broker, log: CallLog, *, name: str, chance: random.Random) -> None:
        self._broker = broker
        self._log = log
        self._name = name
        self._numbers = itertools.count(1)
        self.chance = chance

    def new_name(self) -> str:
        """Return a name that no other message ever has."""
        return f"{self._name}-{next(self._numbers)}"

    def message(self, name: str, *, dedup_id: str | None, delay_ms: int = 0) -> NewMessage:
        """Return the message of a name, which always has the same tenant: dedup ids are those of a tenant."""
        tenant = random.Random(name).choice(TENANTS)
        return NewMessage(payload=payload_of(name), fairness_key=tenant, dedup_id=dedup_id, delay_ms=delay_ms)

    # -------------------------------------------------------------------------------------------------------- producing

    def enqueue(
        self, queue: str, named: list[tuple[str, str | None]], *, delay_ms: int = 0, wait_ms: int = 30_000
    ) -> list[Any]:
        """Enqueue messages by name, each with a dedup id or none."""
        messages = [self.message(name, dedup_id=dedup_id, delay_ms=delay_ms) for name, dedup_id in named]

        def ask() -> Fields:
            return {
                "ids": [outcome_of(result) for result in self._broker.enqueue_many(queue, messages, wait_ms=wait_ms)]
            }

        answered = self._log.call(
            "enqueue",
            ask,
            queue=queue,
            names=[name for name, _ in named],
            dedups=[dedup_id for _, dedup_id in named],
        )
        return list(answered.get("ids", ()))

    def cancel(self, queue: str, ids: list[str]) -> None:
        """Cancel messages."""
        self._log.call(
            "cancel",
            lambda: {"results": [outcome_of(result) for result in self._broker.cancel_many(queue, ids)]},
            queue=queue,
            ids=ids,
        )

    # -------------------------------------------------------------------------------------------------------- consuming

    def lease(self, queue: str, count: int, *, visibility_ms: int) -> list[Delivery]:
        """Lease messages, with their state."""
        deliveries: list[Delivery] = []

        def ask() -> Fields:
            deliveries.extend(
                self._broker.lease(queue, count, wait_ms=20, visibility_ms=visibility_ms, with_state=True)
            )
            return {"got": [_delivery_line(delivery) for delivery in deliveries]}

        self._log.call("lease", ask, queue=queue)
        return deliveries

    def settle(self, verb: str, queue: str, receipts: list[Receipt], **terms: Any) -> list[Any]:
        """Ack, nack or extend by receipts."""
        asks: dict[str, Callable[[], list[Any]]] = {
            "ack": lambda: list(self._broker.ack_many(queue, receipts)),
            "nack": lambda: list(self._broker.nack_many(queue, receipts, **terms)),
            "extend": lambda: list(self._broker.extend_many(queue, receipts, **terms)),
        }
        answered = self._log.call(
            verb,
            lambda: {"results": [outcome_of(result) for result in asks[verb]()]},
            queue=queue,
            receipts=[[receipt.id, receipt.token] for receipt in receipts],
            **terms,
        )
        return list(answered.get("results", ()))

    def forward(self, delivery: Delivery, target: str) -> None:
        """Ack a message and enqueue two others in the same commit."""
        names = [f"{self.new_name()}-of-{delivery.id}" for _ in range(2)]
        messages = [self.message(name, dedup_id=None) for name in names]
        self._log.call(
            "forward",
            lambda: {"ids": self._broker.ack(delivery, forward={target: messages}), "results": [None]},
            queue=delivery.queue,
            receipts=[[delivery.id, delivery.token]],
            target=target,
            names=names,
        )

    def write_state(self, queue: str, receipt: Receipt, etag: str | None) -> str | None:
        """Write the state of a message, and return its new etag or the one before."""
        value = f"state-{self.new_name()}"
        delivery = _bare_delivery(queue, receipt)
        answered = self._log.call(
            "state",
            lambda: {"results": [self._broker.set_state(delivery, value.encode(), etag=etag)]},
            queue=queue,
            receipts=[[receipt.id, receipt.token]],
            value=value,
        )
        return str(answered["results"][0]) if "results" in answered else etag

    # --------------------------------------------------------------------------------------------------------- the rest

    def configure(self, key: str, value: str) -> None:
        """Set a config value."""

        def ask() -> Fields:
            self._broker.set_config(key, value)
            return {}

        self._log.call("config", ask, key=key, value=value)

    def redrive(self, queue: str) -> None:
        """Start a redrive."""
        self._log.call("redrive", lambda: {"status": self._broker.redrive(queue, count=20).status}, queue=queue)

    def survey(self) -> None:
        """Log the whole content of the broker."""

        def ask() -> Fields:
            found = [self._broker.peek(queue, SURVEY_MAX, with_body=True) for queue in ALL_QUEUES]
            messages = []
            for view in itertools.chain.from_iterable(found):
                state, etag = (None, None) if view.state_etag is None else self._state_of(view)
                # No view shows the token, and the ledger has 0 for a message that is not leased.
                token = self._broker._engine.ledger.token_of(view.queue, number_in(view.id)) or None
                messages.append([view.id, view.queue, name_in(view.payload), token, state, etag])
            return {"messages": messages, "config": self._broker.list_config("life:")}

        self._log.call("survey", ask)

    def _state_of(self, view: MessageView) -> tuple[str | None, str | None]:
        """Return the state of a message, which may have become a dead letter since."""
        try:
            state, etag = self._broker.get_state(view.queue, view.id)
        except MessageNotFound:
            state, etag = self._broker.get_state(f"{view.queue}.dlq", view.id)
        return None if state is None else state.decode(errors="replace"), etag


def _delivery_line(delivery: Delivery) -> list[Any]:
    state = None if delivery.state is None else delivery.state.decode(errors="replace")
    return [
        delivery.id,
        delivery.token,
        delivery.expires_ms,
        name_in(delivery.payload),
        delivery.attempt,
        state,
        delivery.state_etag,
    ]


def _bare_delivery(queue: str, receipt: Receipt) -> Delivery:
    return Delivery(
        id=receipt.id,
        queue=queue,
        token=receipt.token,
        payload=b"",
        headers={},
        fairness_key="",
        attempt=0,
        expires_ms=0,
        enqueued_ms=0,
        correlation_id="",
    )


# ------------------------------------------------------------------------------------------------------------- the work


def produce(hand: Hand) -> None:
    """Enqueue forever: in batches, half of them with dedup ids, some of those twice, some delayed and cancelled."""
    chance = hand.chance
    while True:
        queue = "orders" if chance.random() < 0.8 else "shipping"
        names = [hand.new_name() for _ in range(chance.randint(1, 8))]
        named = [(name, f"once-{name}" if chance.random() < 0.5 else None) for name in names]
        delay_ms = 200 if chance.random() < 0.1 else 0
        ids = hand.enqueue(queue, named, delay_ms=delay_ms)
        again = [pair for pair in named if pair[1] is not None]
        if again and chance.random() < 0.2:
            hand.enqueue(queue, again)
        if delay_ms:
            hand.cancel(queue, [message_id for message_id in ids[:2] if not message_id.startswith("!")])


def consume(hand: Hand) -> None:
    """Lease forever, and do something random with each message."""
    chance = hand.chance
    while True:
        queue = chance.choices(("orders", "shipping", "orders.dlq"), (8, 4, 1))[0]
        # The longest outlasts the restart of a killed process on a busy machine, so that its receipts are tried, too.
        visibility_ms = chance.choice((60, 400, 1_500, 60_000))
        deliveries = hand.lease(queue, chance.randint(1, 8), visibility_ms=visibility_ms)
        plain = [delivery for delivery in deliveries if chance.random() < 0.5]
        if plain:
            hand.settle("ack", queue, _receipts(plain))
        for delivery in deliveries:
            if delivery not in plain:
                treat(hand, delivery)


def treat(hand: Hand, delivery: Delivery) -> None:
    """Do one of the rarer things with a leased message."""
    queue, receipts = delivery.queue, _receipts([delivery])
    what = hand.chance.choice(("forward", "fail", "defer", "bury", "extend", "state", "state", "abandon"))
    if what == "forward":
        hand.forward(delivery, "shipping" if queue == "orders" else "orders")
    elif what == "fail":
        hand.settle("nack", queue, receipts, error="no luck")
        hand.settle("ack", queue, receipts)
    elif what == "defer":
        hand.settle("nack", queue, receipts, intent="defer", delay_ms=5)
    elif what == "bury" and hand.chance.random() < 0.3:
        hand.settle("nack", queue, receipts, intent="dead", error="hopeless")
    elif what == "extend":
        hand.settle("extend", queue, receipts, visibility_ms=800)
        hand.settle("ack", queue, receipts)
    elif what == "state":
        etag = hand.write_state(queue, receipts[0], delivery.state_etag)
        hand.write_state(queue, receipts[0], etag)
        hand.settle("nack", queue, receipts, intent="defer", delay_ms=0)


def _receipts(deliveries: list[Delivery]) -> list[Receipt]:
    return [Receipt(delivery.id, delivery.token) for delivery in deliveries]


def meddle(hand: Hand, life: str) -> None:
    """Change config and redrive dead letters, forever."""
    for count in itertools.count(1):
        hand.configure(f"life:{life}", str(count))
        hand.redrive("orders.dlq")


def run_errands(hand: Hand, errands: Fields) -> None:
    """Try receipts of earlier processes, and repeat enqueues with a dedup id."""
    for queue, message_id, token in errands["receipts"]:
        verb = hand.chance.choice(RECEIPT_VERBS)
        receipt = Receipt(message_id, token)
        if verb == "state":
            hand.write_state(queue, receipt, None)
        else:
            hand.settle(verb, queue, [receipt])
    for queue, name, dedup_id in errands["dedups"]:
        hand.enqueue(queue, [(name, dedup_id)], wait_ms=0)


def guarded(log: CallLog, work: Callable[[], None]) -> None:
    """Run a thread's work, and end the process if it fails or its parent is gone."""
    try:
        work()
    except BrokenPipeError:
        os._exit(0)
    except BaseException:  # noqa: BLE001 - whatever it is, the parent must see it
        log.panic()
        os._exit(1)


def opened(store: str, log: CallLog) -> Broker:
    """Open a broker like ``open_broker``, with other settings for its journal."""
    engine = Engine(
        open_store(store, durability="fsync"),
        hooks=LuaHooks(lambda _queue, _key: None),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        settings=SETTINGS,
        carry_floor=CARRY_FLOOR,
    )
    engine.open()
    log.follow(engine)
    return Broker(engine)


def begin(store: str, log: CallLog, errands: Fields, life: str) -> None:
    """Open the store, survey it, run the errands, then start all threads."""
    os.write(sys.stdout.fileno(), b"o")
    broker = opened(store, log)

    def hand(name: str) -> Hand:
        return Hand(broker, log, name=f"{life}-{name}", chance=random.Random(f"{life} {name}"))

    if not broker.queues():
        broker.create_queue("orders", POLICY)
    if len(broker.queues()) < len(ALL_QUEUES):
        broker.create_queue("shipping", POLICY)
    first = hand("first")
    first.survey()
    run_errands(first, errands)
    works: list[Callable[[], None]] = [lambda: meddle(hand("meddler"), life)]
    works += [lambda at=at: produce(hand(f"p{at}")) for at in range(PRODUCERS)]  # type: ignore[misc] # bound early
    works += [lambda at=at: consume(hand(f"c{at}")) for at in range(CONSUMERS)]  # type: ignore[misc] # bound early
    os.write(sys.stdout.fileno(), b"w")
    for work in works:
        threading.Thread(target=guarded, args=(log, work)).start()


if __name__ == "__main__":
    faulthandler.enable()
    skew()
    call_log = CallLog(Path(sys.argv[2]))
    guarded(call_log, lambda: begin(sys.argv[1], call_log, json.loads(Path(sys.argv[3]).read_text()), sys.argv[4]))
