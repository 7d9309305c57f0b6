"""How the broker answers each request: the one table from request classes to what the engine is given.

A request that changes something is a ``Call``: the engine decides it in a cycle (``fairlane.core.decide``). A read-only
request is a ``Read``: a function of the engine that runs once the cycle is durable. A lease is a ``Waiter``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from fairlane.broker.handlers import batches, config, internal, messages, queues, schedules, uploads
from fairlane.broker.handlers.checks import check_author, check_handlers, check_taking, check_wait
from fairlane.broker.handlers.queues import start_dry_run
from fairlane.broker.requests import Call, Read, StatusWaiter, Submission, Waiter
from fairlane.core.commands import Command, Given
from fairlane.core.decide import DECIDERS
from fairlane.core.producer import LimitedProducer
from fairlane.errors import InvalidArgument
from fairlane.model.limits import TIMESPAN_MS_MAX
from fairlane.verbs.config import TryHook
from fairlane.verbs.dead_letters import Redrive, StopRedrive
from fairlane.verbs.leases import Lease
from fairlane.verbs.messages import Enqueue, Peek
from fairlane.verbs.schedules import RunSchedule
from fairlane.verbs.status import GetResult, GetStatus
from fairlane.verbs.uploads import ReadPayload
from fairlane.verbs.verb import Reply, Request

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine

READS: Final[Mapping[type, Callable[..., Any]]] = {
    **messages.READS,
    **queues.READS,
    **config.READS,
    **batches.READS,
    **schedules.READS,
    **uploads.READS,
    **internal.READS,
}
"""How read-only requests are answered: with the engine and the request."""
LISTS: Final[Mapping[type, Callable[..., Any]]] = {**batches.LISTS, **uploads.LISTS}
"""How lists are answered of which a caller sees only its own: with the engine, the request, and the limited caller."""
CHECKS: Final[Mapping[type, Callable[[Any], None]]] = {
    **messages.CHECKS,
    **queues.CHECKS,
    **config.CHECKS,
    **batches.CHECKS,
    **schedules.CHECKS,
    **uploads.CHECKS,
}
"""What is checked before a request is submitted; each raises ``InvalidArgument`` or ``Forbidden``."""


def submission_of(
    engine: Engine,
    request: Request[Any] | Command[Any],
    reply: Reply,
    by: str | None = None,
    producer: LimitedProducer | None = None,
) -> Submission:
    """Return what to submit to the engine for a request. The reply receives the answer.

    ``producer`` is the caller if its grants limit which messages it may enqueue, or what it may see.

    Raises:
        InvalidArgument, Forbidden: the request is not valid here.
    """
    kind = type(request)
    check = CHECKS.get(kind)
    if check is not None:
        check(request)
    if kind is Redrive and (redrive := cast("Redrive", request)).is_dry_run:
        return Read(partial(start_dry_run, engine, redrive, by=by), reply)
    if kind in DECIDERS or kind in (TryHook, RunSchedule, StopRedrive):
        if by is not None:
            check_author(by)
        if producer is None and (by is None or not isinstance(request, Enqueue)):
            return Call(request, reply, by)
        return Call(request, reply, by, Given(by=by, producer=producer))
    if isinstance(request, Lease):
        return _waiter(request, reply)
    if isinstance(request, (GetStatus, GetResult)):
        check_wait(request.wait_ms)
        return StatusWaiter(request=request, reply=reply, reader=producer)
    if kind in LISTS:
        return Read(partial(LISTS[kind], engine, request, producer), reply)
    read = READS.get(kind)
    if read is None:
        raise InvalidArgument(f"A broker on its own cannot answer {kind.__name__}: it is not a node of a cluster.")
    reads_here = kind is ReadPayload and not engine.fetches.is_remote
    is_large = getattr(request, "with_body", reads_here) or (kind is Peek and messages.is_long(cast("Peek", request)))
    return Read(partial(read, engine, request), reply, is_large)


def _waiter(request: Lease, reply: Reply) -> Waiter:
    check_taking(request.count, request.wait_ms, request.visibility_ms, request.owner)
    if request.handlers is not None:
        check_handlers(request.handlers, least=0)
    return Waiter(
        queue=request.queue,
        count=request.count,
        reply=reply,
        visibility_ms=request.visibility_ms,
        owner=request.owner,
        with_state=request.with_state,
        wait_ms=min(request.wait_ms, TIMESPAN_MS_MAX),
        room=getattr(reply, "room", None),
        handlers=request.handlers,
        has_columns=getattr(reply, "has_columns", False),
    )
