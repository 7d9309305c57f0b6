"""What time alone does in a cycle: leases and temporary config end, consumers, sinks and uploads fall silent."""

from __future__ import annotations

from typing import Final

from fairlane.broker.calls import run_call
from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Call
from fairlane.broker.settings import Settings
from fairlane.core.commands import Given, Remove, RestoreConfig, SweepResults, SweepUpload, Unclaim, Unstage
from fairlane.core.ledger import Message
from fairlane.model.message import Receipt
from fairlane.verbs.leases import Nack

_EXPIRED: Final = Given(reason="expiry")


def expire(executor: Executor, cycle: Cycle, *, leases_max: int) -> None:
    """Take back the leases that have ended, about ``leases_max`` of them, and remove what has come too late."""
    schedule = executor.schedule
    for queue, messages in schedule.expired_leases(cycle.now_ms, most=leases_max):
        receipts = [Receipt(message.id, message.token) for message in messages]
        executor.metrics.expired(messages, cycle.now_ms)
        request = Nack(queue=queue, receipts=receipts, error="The lease ended.")
        run_call(executor, Call(request, given=_EXPIRED), cycle)
    for queue, consumer in schedule.presence.idle_consumers(cycle.now_ms):
        executor.execute(Unclaim(queue=queue, consumer=consumer), cycle)
    for queue, sink in schedule.presence.silent_sinks(cycle.now_ms):
        executor.execute(Unstage(queue=queue, sink=sink), cycle)
    for queue, upload in schedule.presence.silent_uploads(cycle.now_ms):
        if executor.producers.names_upload(queue, executor.ledger.ids.id_of(upload)):
            schedule.presence.hear_upload(queue, upload, cycle.now_ms)  # it is complete, and waits for capacity
        else:
            executor.execute(SweepUpload(queue=queue, upload=upload), cycle)
    if executor.ledger.config_due_ms <= cycle.now_ms:
        executor.execute(RestoreConfig(), cycle)
    if executor.ledger.finished.due_ms <= cycle.now_ms:
        executor.execute(SweepResults(through_ms=cycle.now_ms), cycle)
    remove(executor, cycle, schedule.departed(cycle.now_ms))


def forget_excess(executor: Executor, cycle: Cycle, settings: Settings) -> None:
    """Forget messages that have ended before their time if more are remembered than the broker may keep."""
    finished = executor.ledger.finished
    through_ms = finished.excess_ms(count_max=settings.results_max, bytes_max=settings.results_bytes_max)
    if through_ms is not None:
        executor.execute(SweepResults(through_ms=through_ms), cycle)


def remove(executor: Executor, cycle: Cycle, departed: list[tuple[str, list[Message]]]) -> None:
    """Remove the messages whose deadlines have passed, by queue."""
    for queue, messages in departed:
        known = executor.ledger.queues[queue].messages
        numbers = [message.number for message in messages if message.number in known]  # others are gone already
        if numbers:
            executor.execute(Remove(queue=queue, numbers=numbers, reason="deadline"), cycle)
