"""The HTTP door: a plain ASGI application.

Every verb is a POST of its request to its path. Beside the verbs there are streams of deliveries, pages to be looked at
with GET, and what operators' machines ask for: health, metrics and a description of it all.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from fairlane.errors import FairlaneError, QueueElsewhere, RouteNotFound
from fairlane.gateway.caller import Caller
from fairlane.server.doors import Doors
from fairlane.server.interfaces import raw_payload, subscription
from fairlane.server.interfaces.asgi import Receive, Scope, Send, address_of
from fairlane.server.interfaces.exchange import Exchange, Gone
from fairlane.server.interfaces.long_poll import lease_or_hang_up
from fairlane.server.interfaces.relay import may_relay, relay
from fairlane.server.interfaces.stream import serve_stream
from fairlane.server.live import feed
from fairlane.server.logs import level_of
from fairlane.server.routes import journal, pages, reports
from fairlane.verbs.leases import Lease
from fairlane.verbs.table import PATHS, VERBS
from fairlane.verbs.verb import Shape

Route = Callable[[Doors, Exchange, Caller], Awaitable[None]]
_log = logging.getLogger("fairlane.access")
_NOT_KEPT: Final = {"cache-control": "no-store"}


async def _verb(name: str, doors: Doors, exchange: Exchange, caller: Caller) -> None:
    request = await exchange.request(VERBS[name].request, name)
    await _answer(name, request, doors, exchange, caller)


async def _enqueue(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    await (raw_payload.enqueue if raw_payload.is_raw(exchange) else partial(_verb, "enqueue"))(doors, exchange, caller)


async def _dequeue_with_state(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    request = await exchange.request(Lease, "dequeueWithState")
    await _answer("lease", msgspec.structs.replace(request, with_state=True), doors, exchange, caller)


async def _answer(name: str, request: Shape, doors: Doors, exchange: Exchange, caller: Caller) -> None:
    doors.limits.check_wait(request)
    origin = exchange.origin()
    if isinstance(request, Lease):
        is_raw = raw_payload.wants_raw(exchange, request)
        answer = await lease_or_hang_up(doors, exchange, request, caller, origin)
        if len(answer.deliveries) == 1:
            exchange.correlation_id = answer.deliveries[0].correlation_id
        await (raw_payload.answer(exchange, answer) if is_raw else exchange.answer(answer))
        return
    answered = await doors.call(name, request, caller, origin)
    await exchange.answer(answered, headers=_NOT_KEPT if VERBS[name].is_secret else None)


def _routes() -> dict[tuple[str, str], Route]:
    routes: dict[tuple[str, str], Route] = {
        ("POST", f"/v1/{path}"): partial(_verb, verb.name) for path, verb in PATHS.items()
    }
    return routes | {
        ("POST", "/v1/queue/enqueue"): _enqueue,
        ("POST", "/v1/queue/dequeueWithState"): _dequeue_with_state,
        ("POST", "/v1/queue/subscribe"): subscription.subscribe,
        ("POST", "/v1/queue/subscribeWithState"): subscription.subscribe_with_state,
        ("POST", "/v1/queue/watch"): subscription.watch,
        ("GET", "/v1/queue/watch"): subscription.watch,
        ("GET", "/v1/queues"): pages.queues,
        ("GET", "/v1/config"): pages.config,
        ("GET", "/v1/journal"): journal.journal,
        ("GET", "/v1/live"): feed.live,
        ("GET", "/v1/cluster"): pages.cluster,
        ("GET", "/v1/reports"): reports.reports,
        ("GET", "/metrics"): pages.metrics,
    }


ROUTES: Final = _routes()
_QUEUE: Final = "/v1/queues/"
_STREAMS: Final = frozenset(
    (
        *("/v1/queue/subscribe", "/v1/queue/subscribeWithState", "/v1/queue/watch"),
        *("/v1/live", "/v1/journal"),
    )
)
"""What is answered bit by bit: at a node that has not got the queue, what is asked with GET is answered from the one
that has, and whoever asks otherwise, or follows, is sent there."""
_METHODS: Final = {path: {method for method, at in ROUTES if at == path} for _, path in ROUTES}


class HttpDoor:
    """The ASGI application: HTTP here, WebSockets on to the stream."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or connection."""
        if scope["type"] == "websocket":
            await serve_stream(self._doors, scope, receive, send)
        elif scope["type"] == "http":
            most, has_others = self._doors.limits.body_bytes_max, self._doors.groups is not None
            await self._serve(Exchange(scope, receive, send, body_bytes_max=most, has_others=has_others))

    async def _serve(self, exchange: Exchange) -> None:
        try:
            await self._route(exchange)
        except Gone:
            return
        except QueueElsewhere as error:
            await self._send_on(exchange, error)
        except FairlaneError as error:
            await self._refuse(exchange, error)
        except Exception as error:  # noqa: BLE001 - whoever asks gets an answer
            await self._refuse(exchange, Doors.fault(exchange.path, error))

    async def _send_on(self, exchange: Exchange, error: QueueElsewhere) -> None:
        """Answer from the node that has the queue where that is possible, or else say who it is."""
        router = self._doors.router
        if router is None or exchange.is_begun or exchange.path not in _STREAMS or not may_relay(exchange):
            await self._refuse(exchange, error)
            return
        try:
            await relay(self._doors, router, exchange, error.at)
        except Gone:
            return
        except FairlaneError as fault:
            await self._refuse(exchange, fault)

    async def _refuse(self, exchange: Exchange, error: FairlaneError) -> None:
        extra = {"code": error.code, "correlation_id": exchange.correlation_id}
        _log.log(level_of(error), "%s %s was refused: %s", exchange.method, exchange.path, error.code, extra=extra)
        if exchange.is_begun:
            return
        if isinstance(error, QueueElsewhere) and exchange.path in _STREAMS:
            query = f"?{exchange.query_string}" if exchange.query_string else ""
            await exchange.refuse(error, status=307, location=f"{error.at}{exchange.path}{query}")
        else:
            await exchange.refuse(error)

    async def _route(self, exchange: Exchange) -> None:
        doors, path = self._doors, exchange.path
        public = pages.PUBLIC.get(path) if exchange.method == "GET" else None
        if public is not None:
            await public(doors, exchange)
            return
        exchange.read_correlation_id()
        caller = doors.caller(exchange.scope)
        doors.admit(caller, address_of(exchange.scope))
        route = ROUTES.get((exchange.method, path))
        if route is not None:
            await route(doors, exchange, caller)
        elif path.startswith(_QUEUE) and exchange.method == "GET":
            await pages.queue(path.removeprefix(_QUEUE), doors, exchange, caller)
        else:
            await self._lost(exchange)

    @staticmethod
    async def _lost(exchange: Exchange) -> None:
        methods = _METHODS.get(exchange.path, set()) | ({"GET"} if exchange.path in pages.PUBLIC else set())
        if not methods:
            raise RouteNotFound(f"There is nothing at {exchange.path!r:.150}; /docs says what there is.")
        allowed = ", ".join(sorted(methods))
        error = RouteNotFound(f"{exchange.path} is asked with {allowed}, not {exchange.method:.20}.")
        await exchange.refuse(error, status=405, allow=allowed)
