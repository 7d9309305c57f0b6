"""From a verb's name and its request to its answer: the one table behind HTTP and the stream."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.errors import InvalidArgument
from fairlane.gateway.caller import Caller
from fairlane.server.suggestions import suggestion
from fairlane.server.verbs import admin, batches, messages
from fairlane.verbs.batches import Stage
from fairlane.verbs.keys import EVERY
from fairlane.verbs.leases import Forward
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Shape

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


def check_rights(name: str, request: Shape, caller: Caller) -> None:
    """Refuse what a caller has no right to. A verb that is about no queue needs its right on all of them.

    Raises:
        Forbidden: it has no right to it.
    """
    if caller.grants is None:
        return
    if isinstance(request, (Enqueue, Stage)):
        caller.check_producing(request.queue, request.messages)
        return
    verb = VERBS[name]
    caller.check(verb.right, request.queue if verb.about == "queue" else EVERY)  # type: ignore[attr-defined]  # it names one
    if isinstance(request, Forward):
        for queue, news in request.messages.items():
            caller.check_producing(queue, news)


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
