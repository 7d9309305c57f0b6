"""How a gateway hands a request to a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec  # noqa: TC002 - the annotations of a NamedTuple are evaluated by tools

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.requests import Reply
from fairlane.gateway.caller import Caller


class Dispatch(NamedTuple):
    """The two ways to hand a request to a broker: for an answer that is awaited, and for one that a reply takes."""

    call: Callable[[AsyncBroker, Any, Caller], Awaitable[msgspec.Struct]]
    ask: Callable[[AsyncBroker, Any, Caller, Reply], None]
