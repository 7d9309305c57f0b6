"""The worker: handlers for the messages of queues, and everything around them."""

from fairlead.worker.app import Worker
from fairlead.worker.counters import Counters
from fairlead.worker.message import ThreadMessage, WorkMessage
from fairlead.worker.policy import HandlerPolicy
from fairlead.worker.restarts import Restarts
from fairlead.worker.results import Ack, DeadLetter, Defer, Forward, Result, Retry

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
