"""GET /v1/history: what a queue, or all queues together, did in the last hour or day."""

from __future__ import annotations

from typing import Final

import msgspec

from fairlane.errors import InvalidArgument
from fairlane.gateway.caller import Caller
from fairlane.model.message import Key
from fairlane.model.partitions import served_name
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.exchange import Exchange
from fairlane.server.live.history import SPANS, Slot
from fairlane.verbs.keys import EVERY

PARAMETERS: Final = ("queue", "span")


class ServedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key with the cost that it was served."""

    key: Key
    served: int


class HistorySlot(msgspec.Struct, frozen=True, kw_only=True):
    """What happened from ``at_ms`` on.

    Attributes:
        covered_ms: how much of the time was observed; rates are counts over this time.
        waiting: the most messages that waited.
        in_flight: the most messages in flight.
        wait_p50_ms: the median wait of the deliveries, at most one eighth too high; null if there were none.
        wait_p99_ms: the 99th percentile of the same waits.
        served: the cost of all deliveries.
        keys: the keys that were served most; none for all queues together.
    """

    at_ms: int
    covered_ms: int
    enqueued: int
    leased: int
    acked: int
    failed: int
    dead: int
    refused: int
    waiting: int
    in_flight: int
    wait_p50_ms: int | None
    wait_p99_ms: int | None
    served: int
    keys: list[ServedKey]


class QueueHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history of one queue, or of all queues together.

    Attributes:
        at_ms: the time of the answer.
        since_ms: when its history began; null for a queue that has none, because too many others are busy.
        slots: the oldest first. A time for which there is no slot was not observed.
    """

    queue: str | None
    span: str
    step_ms: int
    at_ms: int
    since_ms: int | None
    slots: list[HistorySlot]


async def history(server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Answer with the history of a queue, or of all."""
    query = exchange.query(*PARAMETERS)
    queue, span = query.get("queue"), query.get("span", "hour")
    if span not in SPANS:
        raise InvalidArgument(f"span must be one of {', '.join(SPANS)}, not {span!r:.100}.")
    caller.check("observe", EVERY if queue is None else queue)
    server.tally.calls["history"] += 1
    if queue is not None:
        server.gateway.check_whole(queue)
        await server.observed.queue(queue)  # raises for a queue that is unknown or elsewhere
    now_ms = server.observed.now_ms()
    name = None if queue is None else served_name(queue)
    slots = server.recorder.history.slots(name, span, now_ms=now_ms)
    answer = QueueHistory(
        queue=queue,
        span=span,
        step_ms=SPANS[span].step_ms,
        at_ms=now_ms,
        since_ms=server.recorder.since_ms if name is None else server.recorder.history.since_ms(name),
        slots=[_shown(slot) for slot in slots],
    )
    await exchange.answer(answer)


def _shown(slot: Slot) -> HistorySlot:
    return HistorySlot(
        at_ms=slot.at_ms,
        covered_ms=slot.covered_ms,
        enqueued=slot.enqueued,
        leased=slot.leased,
        acked=slot.acked,
        failed=slot.failed,
        dead=slot.dead,
        refused=slot.refused,
        waiting=slot.waiting,
        in_flight=slot.in_flight,
        wait_p50_ms=slot.wait_ms(0.5),
        wait_p99_ms=slot.wait_ms(0.99),
        served=slot.served,
        keys=[ServedKey(key=key, served=served) for key, served in slot.keys],
    )
