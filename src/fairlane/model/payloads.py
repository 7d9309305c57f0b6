"""Payloads from values: JSON, with models of pydantic where a program uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from fairlane.errors import InvalidArgument


class NoValue:
    """Stands for a value that was not given, since None is a value: JSON's null."""

    __slots__ = ()


NO_VALUE: Final = NoValue()


def to_plain(value: object) -> object:
    """Return a model of pydantic as plain values; raise TypeError for anything else.

    The model is known by its method, so that nothing imports pydantic.
    """
    dump: Callable[..., object] | None = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"Objects of type {type(value).__name__} can't be encoded")
    return dump(mode="json")


def from_plain(kind: type, value: object) -> object:
    """Return a model of pydantic from plain values; raise TypeError for any other type."""
    validate: Callable[..., object] | None = getattr(kind, "model_validate", None)
    if validate is None:
        raise TypeError(f"Values of type {kind} can't be decoded")
    try:
        return validate(value)
    except ValueError as error:
        faults: Callable[[], list[dict[str, Any]]] | None = getattr(error, "errors", None)
        if faults is None:
            raise
        raise ValueError(_first_of(faults())) from error


def _first_of(faults: list[dict[str, Any]]) -> str:
    """Return the first fault that pydantic has found in one line, with its path in the form of msgspec."""
    (first, *others) = faults
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    more = f" (and {len(others)} more)" if others else ""
    return f"{first['msg']}{more} - at `${path}`"


_encode: Final = msgspec.json.Encoder(enc_hook=to_plain).encode


def json_payload(value: object) -> bytes:
    """Return the JSON of a value: plain values, dataclasses, Structs, and models of pydantic.

    Raises InvalidArgument if the value cannot be encoded.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"Cannot encode the payload as JSON: {error}.") from error
