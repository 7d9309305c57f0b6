"""Typed tasks: annotated functions that programs send as jobs, and workers run."""

from fairlane.tasks.app import App, TaskTerms
from fairlane.tasks.calls import Chain, FanOutPlan, SentFanOut, TaskCall, ThreadSentFanOut
from fairlane.tasks.handle import JobHandle, ThreadJobHandle
from fairlane.tasks.options import SendOptions
from fairlane.tasks.task import TypedTask

__all__ = [
    "App",
    "Chain",
    "FanOutPlan",
    "JobHandle",
    "SendOptions",
    "SentFanOut",
    "TaskCall",
    "TaskTerms",
    "ThreadJobHandle",
    "ThreadSentFanOut",
    "TypedTask",
]
