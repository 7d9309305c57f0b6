"""Fair queueing for HTTP services: a pure ASGI middleware over the scheduler, for any framework.

``FairQueue`` is the middleware. ``FairGate`` is what it lets requests through: make one first to read its statistics
and change its limits while the service runs.
"""

from fairlead.asgi.gate import FairGate, GateOptions
from fairlead.asgi.live_throttles import GateThrottles
from fairlead.asgi.middleware import FairQueue
from fairlead.asgi.protocol import header
from fairlead.asgi.refusal import Refused, render_json
from fairlead.asgi.stats import GateStats

__all__ = [
    "FairGate",
    "FairQueue",
    "GateOptions",
    "GateStats",
    "GateThrottles",
    "Refused",
    "header",
    "render_json",
]
