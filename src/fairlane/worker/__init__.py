"""The worker: runs handlers for the messages of queues."""

from fairlane.worker.app import Worker
from fairlane.worker.message import ThreadMessage, WorkMessage
from fairlane.worker.policy import HandlerPolicy, Restarts
from fairlane.worker.results import Acknowledge, Counters, DeadLetter, Defer, ForwardTo, HandlerResult, Retry

__all__ = [
    "Acknowledge",
    "Counters",
    "DeadLetter",
    "Defer",
    "ForwardTo",
    "HandlerPolicy",
    "HandlerResult",
    "Restarts",
    "Retry",
    "ThreadMessage",
    "WorkMessage",
    "Worker",
]
