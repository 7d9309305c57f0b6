"""Fair queueing for HTTP services: a pure ASGI middleware over the scheduler, for any framework.

``FairQueue`` is the middleware. ``FairGate`` limits and orders the requests: create one yourself to read its statistics
and to change its limits while the service runs.
"""

from fairlane.asgi.gate import FairGate, GateOptions, GateStats, GateThrottles
from fairlane.asgi.middleware import FairQueue
from fairlane.asgi.protocol import header
from fairlane.asgi.refusal import RefusedRequest, render_json

__all__ = [
    "FairGate",
    "FairQueue",
    "GateOptions",
    "GateStats",
    "GateThrottles",
    "RefusedRequest",
    "header",
    "render_json",
]
