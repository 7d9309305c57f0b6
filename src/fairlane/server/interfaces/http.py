"""The HTTP interface: a plain ASGI application.

Every verb is a POST of its request to its path. Besides the verbs there are streams of deliveries, pages for people,
and what monitoring needs: health, metrics and a description of the API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Final, cast
from urllib.parse import unquote

import msgspec

from fairlane.errors import FairlaneError, QueueElsewhere, RouteNotFound, TooMuchUnread
from fairlane.gateway.caller import Caller
from fairlane.gateway.leases import leased_unless
from fairlane.server.access_log import DISCONNECTED
from fairlane.server.context import ServerContext
from fairlane.server.dispatch import decoded
from fairlane.server.interfaces import payload_streams, raw_payload, subscription
from fairlane.server.interfaces.asgi import Receive, Scope, Send, address_of
from fairlane.server.interfaces.correlation import echoed
from fairlane.server.interfaces.exchange import RAW, Exchange, Gone
from fairlane.server.interfaces.relay import may_relay, relay
from fairlane.server.interfaces.stream_handshake import serve_stream
from fairlane.server.live import feed
from fairlane.server.routes import history, journal, pages, reports
from fairlane.verbs.leases import Lease, LeasedMessages
from fairlane.verbs.messages import Enqueue, EnqueueResults, Results
from fairlane.verbs.status import WATCHING, GetStatus, Watching
from fairlane.verbs.table import PATHS
from fairlane.verbs.uploads import ReadPayload
from fairlane.verbs.verb import Verb

Route = Callable[[ServerContext, Exchange, Caller], Awaitable[None]]
_NO_STORE: Final = {"cache-control": "no-store"}


async def _call(verb: Verb, server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Answer a verb."""
    if caller.grants is not None:
        server.check_before_reading(verb, caller)
    request = await exchange.request(verb.request, verb.name)
    if getattr(request, "wait_ms", 0) > server.limits.wait_ms_max:
        request = server.limits.shortened(request)
    answer = await server.call(request, caller, exchange.context())
    exchange.correlation.id = echoed(request, answer) or exchange.correlation.id
    if isinstance(answer, (EnqueueResults, Results)):
        await exchange.answer_items(answer)
    else:
        await exchange.answer(answer, headers=_NO_STORE if verb.is_secret else None)


async def _watch(kind: type[Watching], server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Answer what becomes of a message, unless the caller disconnects while it waits."""
    if caller.grants is not None:
        server.check_before_reading(kind.verb, caller)
    await _tell(await exchange.request(kind, kind.verb.name), server, exchange, caller)


async def _message(message_id: str, server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Answer with the status of a message."""
    exchange.verb = GetStatus.verb.name
    given = exchange.query("queue", "wait_ms", "after") | {"id": unquote(message_id)}
    request = decoded(lambda _: msgspec.convert(given, GetStatus, strict=False), b"", GetStatus.verb.name)
    await _tell(request, server, exchange, caller)


async def _tell(request: Watching, server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    request = exchange.asked = server.limits.shortened(request)
    if not request.wait_ms:
        await exchange.answer(await server.call(request, caller, exchange.context()))
        return
    with server.waiters.counted(exchange.holder):
        asking = asyncio.ensure_future(server.call(request, caller, exchange.context()))
        await subscription.first_of(asyncio.wait([asking]), exchange.hung_up())
        if not asking.done():
            asking.cancel()
            raise Gone
    await exchange.answer(asking.result())


async def _enqueue(server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    if exchange.content_type == RAW:
        await raw_payload.enqueue(server, exchange, caller)
    else:
        await _call(Enqueue.verb, server, exchange, caller)


async def _lease(fixed: Mapping[str, Any], server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Lease messages, unless the caller disconnects while it waits: then what was leased goes back."""
    if caller.grants is not None:
        server.check_before_reading(Lease.verb, caller)
    request = await exchange.request(Lease, Lease.verb.name)
    if fixed:  # by the alias under which it is called
        request = msgspec.structs.replace(request, **fixed)
    if request.wait_ms > server.limits.wait_ms_max:
        request = server.limits.shortened(request)
    if is_raw := exchange.wants_raw:
        raw_payload.check_lease(request)
    if request.wait_ms:
        leased = await _leased_in_time(request, server, exchange, caller)
    else:
        leased = cast("LeasedMessages", await server.call(request, caller, exchange.context()))
    if len(leased.deliveries) == 1:
        exchange.correlation.id = leased.deliveries[0].correlation_id
    try:
        await (raw_payload.answer(server, exchange, caller, leased) if is_raw else exchange.answer(leased))
    except TooMuchUnread:
        server.give_back(caller, leased)
        raise


async def _read_payload(server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Answer with some of a payload, or with all of it for a caller that accepts its bytes."""
    if not exchange.wants_raw:
        await _call(ReadPayload.verb, server, exchange, caller)
        return
    if caller.grants is not None:
        server.check_before_reading(ReadPayload.verb, caller)
    request = await exchange.request(ReadPayload, ReadPayload.verb.name)
    await payload_streams.send_payload(server, exchange, caller, request)


async def _leased_in_time(request: Lease, server: ServerContext, exchange: Exchange, caller: Caller) -> LeasedMessages:
    with server.waiters.counted(exchange.holder):
        leasing = server.call(request, caller, exchange.context())
        leased = await leased_unless(partial(server.give_back, caller), leasing, exchange.hung_up())
    if leased is None:
        raise Gone
    return leased


def _routes() -> dict[tuple[str, str], Route]:
    routes: dict[tuple[str, str], Route] = {
        ("POST", f"/v1/{path}"): partial(_call, verb) for path, verb in PATHS.items()
    }
    leases = {Lease.verb.path: {}, **Lease.verb.aliases}
    routes |= {("POST", f"/v1/{path}"): partial(_lease, fixed) for path, fixed in leases.items()}
    routes |= {("POST", f"/v1/{kind.verb.path}"): partial(_watch, kind) for kind in WATCHING}
    return routes | {
        ("POST", f"/v1/{Enqueue.verb.path}"): _enqueue,
        ("POST", f"/v1/{ReadPayload.verb.path}"): _read_payload,
        ("POST", "/v1/queue/subscribe"): subscription.subscribe,
        ("POST", "/v1/queue/subscribeWithState"): partial(subscription.subscribe, with_state=True),
        ("POST", "/v1/queue/watch"): subscription.watch,
        ("GET", "/v1/queue/watch"): subscription.watch,
        ("GET", "/v1/queues"): pages.queues,
        ("GET", "/v1/config"): pages.config,
        ("GET", "/v1/journal"): journal.journal,
        ("GET", "/v1/live"): feed.live,
        ("GET", "/v1/history"): history.history,
        ("GET", "/v1/cluster"): pages.cluster,
        ("GET", "/v1/reports"): reports.reports,
        ("GET", "/metrics"): pages.metrics,
    }


ROUTES: Final = _routes()
_QUEUE: Final = "/v1/queues/"
_MESSAGE: Final = "/v1/messages/"
_STREAMS: Final = frozenset(
    (
        "/v1/queue/subscribe",
        "/v1/queue/subscribeWithState",
        "/v1/queue/watch",
        "/v1/live",
        "/v1/history",
        "/v1/journal",
    )
)
"""What is answered in pieces, or read by the dashboard. A node that does not have the queue passes the answer of its
owner on to a GET, and redirects everyone else, who can send the request again or follow by themselves."""
_METHODS: Final = {path: {method for method, at in ROUTES if at == path} for _, path in ROUTES}


class HttpInterface:
    """The ASGI application: serves HTTP, and passes WebSockets on to the stream."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or connection."""
        if scope["type"] == "websocket":
            await serve_stream(self._server, scope, receive, send)
            return
        if scope["type"] != "http":
            return
        begun_s = perf_counter()
        server = self._server
        exchange = Exchange(scope, receive, send, server.limits, server.connections.arrivals, server.room)
        try:
            await self._route(exchange)
        except Gone:
            exchange.status = DISCONNECTED
        except QueueElsewhere as error:
            await self._pass_on(exchange, error)
        except FairlaneError as error:
            await self._refuse(exchange, error)
        except Exception as error:  # noqa: BLE001 - every request gets an answer
            await self._refuse(exchange, self._server.refusal(exchange.path, error))
        except asyncio.CancelledError:
            exchange.status = DISCONNECTED
            raise
        finally:
            if self._server.access is not None:
                self._log(exchange, begun_s)

    def _log(self, exchange: Exchange, begun_s: float) -> None:
        """Add a call to the access log, unless it is for a public page, which health checks ask for all the time."""
        if self._server.access is None or (exchange.method == "GET" and exchange.path in pages.PUBLIC):
            return
        self._server.access.note(
            "http",
            exchange.verb or f"{exchange.method} {exchange.path}",
            begun_s,
            caller=exchange.caller,
            address=address_of(exchange.scope),
            request=exchange.asked,
            status=exchange.status,
            correlation_id=exchange.correlation.id,
        )

    def _route(self, exchange: Exchange) -> Awaitable[None]:
        server, path = self._server, exchange.path
        public = pages.PUBLIC.get(path) if exchange.method == "GET" else None
        if public is not None:
            return public(server, exchange)
        caller = exchange.caller = server.caller(exchange.headers, exchange.scope)
        if server.rates is not None:
            server.admit(caller, address_of(exchange.scope))
        route = ROUTES.get((exchange.method, path))
        if route is not None:
            return route(server, exchange, caller)
        if path.startswith(_QUEUE) and exchange.method == "GET":
            return pages.queue(path.removeprefix(_QUEUE), server, exchange, caller)
        if path.startswith(_MESSAGE) and exchange.method == "GET":
            return _message(path.removeprefix(_MESSAGE), server, exchange, caller)
        return self._lost(exchange)

    async def _pass_on(self, exchange: Exchange, error: QueueElsewhere) -> None:
        """Answer from the node that has the queue where that is possible, or else redirect the caller there."""
        if exchange.is_begun or exchange.path not in _STREAMS or not may_relay(exchange):
            await self._refuse(exchange, error)
            return
        try:
            await relay(self._server, exchange, error.at)
        except Gone:
            exchange.status = DISCONNECTED
        except FairlaneError as fault:
            await self._refuse(exchange, fault)

    async def _refuse(
        self, exchange: Exchange, error: FairlaneError, *, status: int | None = None, **more: str
    ) -> None:
        exchange.status = error.code
        self._server.tally.errors[error.code] += 1
        self._server.refusals.note(
            f"{exchange.method} {exchange.path:.200}",
            error,
            caller=exchange.caller,
            address=address_of(exchange.scope),
            correlation_id=exchange.correlation.id,
        )
        if exchange.is_begun:
            return
        if isinstance(error, QueueElsewhere) and exchange.path in _STREAMS:
            query = f"?{exchange.query_string}" if exchange.query_string else ""
            await exchange.refuse(error, status=307, location=f"{error.at}{exchange.path}{query}")
        else:
            await exchange.refuse(error, status=status, **more)

    async def _lost(self, exchange: Exchange) -> None:
        methods = _METHODS.get(exchange.path, set()) | ({"GET"} if exchange.path in pages.PUBLIC else set())
        if not methods:
            raise RouteNotFound(f"No route for {exchange.path!r:.150}; see /docs for all routes.")
        allowed = ", ".join(sorted(methods))
        error = RouteNotFound(f"Method {exchange.method:.20} is not allowed for {exchange.path}; use {allowed}.")
        await self._refuse(exchange, error, status=405, allow=allowed)
