"""Fair queueing for HTTP services: a pure ASGI middleware over the scheduler, for any framework.

``FairQueue`` is the middleware. ``FairGate`` limits and orders the requests: create one yourself to read its statistics
and to change its limits while the service runs.
"""

from fairlane.asgi.gate import FairGate, GateOptions, GateThrottles
from fairlane.asgi.middleware import FairQueue
from fairlane.asgi.protocol import header
from fairlane.asgi.queued_request import queue_time_ms, report_cost
from fairlane.asgi.refusal import RefusedRequest, render_json
from fairlane.asgi.statistics import GateStats

__all__ = [
    "FairGate",
    "FairQueue",
    "GateOptions",
    "GateStats",
    "GateThrottles",
    "RefusedRequest",
    "header",
    "queue_time_ms",
    "render_json",
    "report_cost",
]
