"""The worker: runs handlers for the messages of queues."""

from fairlane.worker.app import Worker
from fairlane.worker.message import ThreadMessage, WorkMessage
from fairlane.worker.policy import HandlerPolicy, Restarts
from fairlane.worker.results import Ack, Counters, DeadLetter, Defer, Forward, Result, Retry

__all__ = [
    "Ack",
    "Counters",
    "DeadLetter",
    "Defer",
    "Forward",
    "HandlerPolicy",
    "Restarts",
    "Result",
    "Retry",
    "ThreadMessage",
    "WorkMessage",
    "Worker",
]
