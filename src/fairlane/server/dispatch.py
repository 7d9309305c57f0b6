"""From a verb's name and its request to its answer: the one table behind HTTP and the stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import msgspec

from fairlane.errors import InvalidArgument
from fairlane.server.suggestions import suggestion
from fairlane.verbs.table import VERBS

Answer: TypeAlias = msgspec.Struct
T = TypeVar("T")

_PATH = re.compile(r" - at `\$(.*)`$")


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
