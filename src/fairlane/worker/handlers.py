"""What handles the messages of a queue: a function of the program, on the event loop or in threads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from fairlane.model.message import Delivery
from fairlane.model.policy import QueuePolicy
from fairlane.model.schedules import ScheduleSpec
from fairlane.worker.message import ThreadMessage, WorkMessage
from fairlane.worker.policy import Answer, AsyncHandle, Handler, HandlerPolicy
from fairlane.worker.threads import HandlerThreads


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHandler:
    """What a worker does with the messages of one queue.

    Attributes:
        policy: how it takes messages.
        name: what it is called, for operators.
        handle: returns the async function that handles a message, given threads for sync functions.
        kind_of: returns the class of the message that is made from a delivery.
        policy_of: returns the timeout and the rules for failures of a message.
        declared: the policy with which the worker creates the queue if it does not exist; None if it does not.
        schedules: the schedules of the queue, by name, that the worker creates if they do not exist.
        learn: is called with the policy of the queue, before the first message; None if it does not matter.
    """

    policy: HandlerPolicy
    name: str
    handle: Callable[[HandlerThreads], AsyncHandle]
    kind_of: Callable[[Delivery], type[WorkMessage]]
    policy_of: Callable[[WorkMessage], HandlerPolicy]
    declared: Mapping[str, object] | None = None
    schedules: Mapping[str, ScheduleSpec] = field(default_factory=dict)
    learn: Callable[[QueuePolicy], None] | None = None


def is_async(handler: object) -> bool:
    """Return whether calling a handler returns a coroutine."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def queue_handler(
    handler: Handler, policy: HandlerPolicy, declared: Mapping[str, object] | None = None
) -> QueueHandler:
    """Return what handles a queue with one function."""
    in_loop = is_async(handler)
    kind = WorkMessage if in_loop else ThreadMessage

    def handle(threads: HandlerThreads) -> AsyncHandle:
        if in_loop:
            return cast("AsyncHandle", handler)
        return partial(threads.run, cast("Callable[[WorkMessage], Answer]", handler))

    return QueueHandler(
        policy=policy,
        name=getattr(handler, "__name__", type(handler).__name__),
        handle=handle,
        kind_of=lambda _: kind,
        policy_of=lambda _: policy,
        declared=declared,
    )
