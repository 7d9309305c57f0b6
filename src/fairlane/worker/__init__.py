"""The worker: handlers for the messages of queues, and everything around them."""

from fairlane.worker.app import Worker
from fairlane.worker.counters import Counters
from fairlane.worker.message import ThreadMessage, WorkMessage
from fairlane.worker.policy import HandlerPolicy
from fairlane.worker.restarts import Restarts
from fairlane.worker.results import Ack, DeadLetter, Defer, Forward, Result, Retry

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
