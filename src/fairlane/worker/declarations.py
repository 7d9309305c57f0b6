"""Queues and schedules that a program declares where it uses them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fairlane.client.aio import AsyncClient
from fairlane.errors import Forbidden
from fairlane.model.policy import QueuePolicy
from fairlane.model.schedules import ScheduleSpec
from fairlane.worker.handlers import QueueHandler

_log = logging.getLogger("fairlane.worker")


async def ensure_declared(client: AsyncClient, handler: QueueHandler) -> None:
    """Create the queue and the schedules of a handler if they do not exist, where it declares them.

    A queue that exists keeps its settings, and so does a schedule that an operator has set; the log names the
    differences. A caller without the right to create queues
    leaves that to operators. The handler learns which policy the queue has.
    """
    queue = handler.policy.queue
    try:
        if handler.declared is not None:
            policy = await _ensure_queue(client, queue, handler.declared)
            if handler.learn is not None:
                handler.learn(policy)
        for name, spec in handler.schedules.items():
            await _ensure_schedule(client, queue, name, spec)
    except Forbidden as error:
        _log.info("Queue %s is not checked against its declaration: %s", queue, error.cause, extra={"queue": queue})
        if handler.learn is not None:
            handler.learn((await client.queue(queue)).policy)


async def _ensure_queue(client: AsyncClient, queue: str, declared: Mapping[str, object]) -> QueuePolicy:
    ensured = await client.ensure_queue(queue, declared)
    if ensured.is_created:
        _log.info("Created queue %s.", queue, extra={"queue": queue})
    for name in ensured.differing:
        _log.warning(
            "Queue %s has %s=%r, and the program declares %r. The queue keeps its value; an operator can change it "
            "with `fairlane queue update`.",
            queue,
            name,
            getattr(ensured.policy, name),
            declared[name],
            extra={"queue": queue},
        )
    return ensured.policy


async def _ensure_schedule(client: AsyncClient, queue: str, name: str, spec: ScheduleSpec) -> None:
    ensured = await client.ensure_schedule(queue, name, spec)
    if ensured.is_changed:
        done = "Created" if ensured.is_created else "Changed"
        _log.info("%s schedule %s of queue %s.", done, name, queue, extra={"queue": queue})
    for field in ensured.differing:
        _log.warning(
            "Schedule %s of queue %s has %s=%r, and the program declares %r. An operator has set it, so it keeps its "
            "value; change it with `fairlane schedule set`, or delete it and restart the worker.",
            name,
            queue,
            field,
            getattr(ensured.spec, field),
            getattr(spec, field),
            extra={"queue": queue},
        )
