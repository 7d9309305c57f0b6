"""From a verb's name and its request to its answer: the one table behind HTTP and the stream."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.requests import Reply
from fairlane.errors import InvalidArgument
from fairlane.gateway.caller import Caller
from fairlane.gateway.dispatch import Dispatch
from fairlane.server.suggestions import suggestion
from fairlane.server.verbs import admin, batches, messages
from fairlane.server.verbs.quick import QUICK
from fairlane.verbs.table import VERB_OF, VERBS
from fairlane.verbs.verb import Request

Answer: TypeAlias = msgspec.Struct
Handler: TypeAlias = Callable[[AsyncBroker, Any, Caller], Awaitable[Answer]]
T = TypeVar("T")

HANDLERS: Final[Mapping[str, Handler]] = {
    "enqueue": messages.enqueue,
    "lease": messages.lease,
    "ack": messages.ack,
    "forward": messages.forward,
    "nack": messages.nack,
    "extend": messages.extend,
    "cancel": messages.cancel,
    "get": messages.get,
    "peek": messages.peek,
    "explain": messages.explain,
    "get_state": messages.get_state,
    "set_state": messages.set_state,
    "stats": admin.stats,
    "create_queue": admin.create_queue,
    "update_queue": admin.update_queue,
    "delete_queue": admin.delete_queue,
    "pause": admin.pause,
    "resume": admin.resume,
    "purge": admin.purge,
    "queues": admin.queues,
    "inspect": admin.inspect,
    "redrive": admin.redrive,
    "redrive_view": admin.redrive_view,
    "redrives": admin.redrives,
    "stop_redrive": admin.stop_redrive,
    "try_hook": admin.try_hook,
    "hook_statistics": admin.hook_statistics,
    "set_config": admin.set_config,
    "list_config": admin.list_config,
    "throttles": admin.throttles,
    "register_consumer": batches.register_consumer,
    "claim": batches.claim,
    "read_claim": batches.read_claim,
    "release_consumer": batches.release_consumer,
    "consumers": batches.consumers,
    "stage": batches.stage,
    "publish": batches.publish,
    "sinks": batches.sinks,
    "drop_sink": batches.drop_sink,
    "read_journal": admin.read_journal,
    "set_reader": admin.set_reader,
    "remove_reader": admin.remove_reader,
    "readers": admin.readers,
    "cluster": admin.alone,
    "move_queue": admin.alone,
    "split_queue": admin.alone,
    "drain_node": admin.alone,
}
"""What each verb does: with the broker, the request and the caller. It raises nothing but a ``FairlaneError``."""

_PATH = re.compile(r" - at `\$(.*)`$")


def _call(broker: AsyncBroker, request: Request[Any], caller: Caller) -> Awaitable[Answer]:
    return HANDLERS[VERB_OF[type(request)].name](broker, request, caller)


def _ask(broker: AsyncBroker, request: Request[Any], caller: Caller, reply: Reply) -> None:
    quick = QUICK.get(VERB_OF[type(request)].name)
    if quick is not None and not _unbegun:
        broker.submit(quick.ask(request, _Shaped(reply, quick.answer)))
        return
    _unbegun.append(None)  # calls that come before this one has begun have to wait for it
    task = asyncio.ensure_future(_begun(broker, request, caller))
    _tasks.add(task)
    task.add_done_callback(partial(_answered, reply))


async def _begun(broker: AsyncBroker, request: Request[Any], caller: Caller) -> Answer:
    _unbegun.pop()
    return await _call(broker, request, caller)


def _answered(reply: Reply, task: asyncio.Future[Answer]) -> None:
    _tasks.discard(task)
    if reply.done() or task.cancelled():
        return
    error = task.exception()
    if error is not None:
        reply.set_exception(error)
    else:
        reply.set_result(task.result())


class _Shaped:
    """A reply that gets the answer of a verb from the outcome of its command."""

    __slots__ = ("_reply", "_shape", "done", "set_exception")

    def __init__(self, reply: Reply, shape: Callable[[Any], Answer]) -> None:
        self._reply = reply
        self._shape = shape
        self.done = reply.done
        self.set_exception = reply.set_exception

    def set_result(self, result: Any, /) -> None:  # noqa: ANN401 - see Reply
        self._reply.set_result(self._shape(result))


_tasks: set[asyncio.Future[Answer]] = set()
_unbegun: list[None] = []
DISPATCH: Final = Dispatch(_call, _ask)


def decoded(decode: Callable[[Any], T], data: bytes | msgspec.Raw, name: str) -> T:
    """Return the request that bytes hold.

    Raises:
        InvalidArgument: they hold no such request; the cause names the field.
    """
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        raise InvalidArgument(_told(name, str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"The request of {name} can't be read: {error}.") from error
    except RecursionError as error:
        raise InvalidArgument(f"The request of {name} is nested too deeply.") from error


def _told(name: str, fault: str) -> str:
    path = _PATH.search(fault)
    field = "" if path is None else path.group(1).lstrip(".")
    question = suggestion(VERBS[name].request, fault, field) if name in VERBS else ""
    if path is None:
        return f"The request of {name} is not as it should be: {fault}.{question}"
    return f"In the request of {name}, at {field}: {fault[: path.start()]}.{question}"
