"""From bytes to the request of a verb, with one form of errors for HTTP, the stream and gRPC."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from fairlane.errors import InvalidArgument
from fairlane.model.bounds import excess
from fairlane.server.suggestions import limit_of, suggestion
from fairlane.verbs.leases import Lease
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Shape
from fairlane.wire.columns import EITHERS
from fairlane.wire.frames import CONSUME, STOP, WIDEN, WITHDRAW, Consume, Stop, Widen, Withdraw

Answer: TypeAlias = msgspec.Struct
T = TypeVar("T")

SHAPES: Final[dict[str, type[Shape]]] = {name: verb.request for name, verb in VERBS.items()} | {
    CONSUME: Consume,
    STOP: Stop,
    WIDEN: Widen,
    WITHDRAW: Withdraw,
}
"""The request of each verb, those that exist only on the stream included."""
STREAM_VERBS: Final = {**VERBS, CONSUME: Lease.verb}
"""The verbs of the stream that need a right; a channel needs that of a lease."""
LOOKS: Final = frozenset(name for name, verb in VERBS.items() if verb.is_look)
"""The verbs that cost little to ask but may have large answers."""
DECODERS: Final = {name: msgspec.msgpack.Decoder(shape).decode for name, shape in SHAPES.items()}
WITH_COLUMNS: Final = DECODERS | {name: msgspec.msgpack.Decoder(shape).decode for name, shape in EITHERS.items()}
"""How requests are decoded on a stream, and on one that knows columns."""
_PATH = re.compile(r" - at `\$(.*)`$")
_EXCESS = re.compile(r"Expected `(?:array|object)` of length <= (\d+)")


def decoded(decode: Callable[[Any], T], data: bytes | bytearray | msgspec.Raw, name: str) -> T:
    """Return the request that bytes hold.

    Raises:
        InvalidArgument: they hold no such request; the cause names the field.
    """
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        raise InvalidArgument(_explanation(name, str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"Invalid {name} request: it can't be decoded: {error}.") from error
    except RecursionError as error:
        raise InvalidArgument(f"Invalid {name} request: it is nested too deeply.") from error


def _explanation(name: str, fault: str) -> str:
    """Return what is wrong with a request, from the message of msgspec."""
    path = _PATH.search(fault)
    field = "" if path is None else path.group(1).lstrip(".")
    shape = SHAPES.get(name)
    too_long = _EXCESS.match(fault)
    if too_long is not None and shape is not None:
        limit = limit_of(shape, field, int(too_long[1]))
        return f"{field} has more than {too_long[1]} items." if limit is None else excess(field, limit)
    question = suggestion(shape, fault, field) if shape is not None else ""
    if field.endswith(".payload"):
        question = ' It takes base64; pass a JSON value as "json" instead.'
    if path is None:
        return f"Invalid {name} request: {fault}.{question}"
    return f"Invalid {name} request: {fault[: path.start()]} at {field}.{question}"
