"""Check rights and decode requests, for all interfaces."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import msgspec

from fairlane.errors import InvalidArgument
from fairlane.gateway.caller import Caller
from fairlane.server.suggestions import meant
from fairlane.verbs.batches import Stage
from fairlane.verbs.keys import EVERY
from fairlane.verbs.leases import Forward
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Shape

Answer: TypeAlias = msgspec.Struct
T = TypeVar("T")

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
    question = meant(VERBS[name].request, fault, field) if name in VERBS else ""
    if path is None:
        return f"The request of {name} is not as it should be: {fault}.{question}"
    return f"In the request of {name}, at {field}: {fault[: path.start()]}.{question}"
