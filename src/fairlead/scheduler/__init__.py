"""Fair picking as a library that stands alone: who is next, and whether it may go.

``Scheduler`` is the face for threads, ``AsyncScheduler`` the one for asyncio. ``Kernel`` is the scheduler itself, pure,
for those who bring their own clock and loop.
"""

from fairlead.scheduler.aio import AsyncScheduler
from fairlead.scheduler.buckets import Throttles
from fairlead.scheduler.explanation import Explanation, WaitReason
from fairlead.scheduler.face import Options, TaskOptions
from fairlead.scheduler.item import Item, ItemTerms, Key, Priority
from fairlead.scheduler.kernel import Kernel
from fairlead.scheduler.policy import Backpressure, Departure, DepartureReason, KeyPolicy, Refusal, RefusalReason
from fairlead.scheduler.statistics import Counts, Statistics, WaitTimes
from fairlead.scheduler.task import Task
from fairlead.scheduler.threads import Scheduler

__all__ = [
    "AsyncScheduler",
    "Backpressure",
    "Counts",
    "Departure",
    "DepartureReason",
    "Explanation",
    "Item",
    "ItemTerms",
    "Kernel",
    "Key",
    "KeyPolicy",
    "Options",
    "Priority",
    "Refusal",
    "RefusalReason",
    "Scheduler",
    "Statistics",
    "Task",
    "TaskOptions",
    "Throttles",
    "WaitReason",
    "WaitTimes",
]
