"""Batch tasks: each job has one item, and the function gets the items of many jobs as a list.

The payload of a job is its item, so that what other languages send looks as for any other task.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args, get_origin

from msgspec.inspect import DataclassType, StructType, type_info

from fairlane.errors import InvalidArgument
from fairlane.tasks.arguments import ArgumentsCodec, Encoding, hints_of

_ONE: Final = 1


@dataclass(frozen=True, slots=True)
class BatchTerms:
    """How many jobs a batch task gets at once, and how long the first of them waits for others."""

    size: int
    wait_ms: int

    def check(self, name: str, concurrency: int) -> None:
        """Raise InvalidArgument if a batch could never be full."""
        if not 1 <= self.size <= concurrency or self.wait_ms < 0:
            cause = f"Task {name!r} has batch={self.size}, batch_ms={self.wait_ms} and concurrency={concurrency}"
            raise InvalidArgument(f"{cause}; expected 1 <= batch <= concurrency and batch_ms >= 0.")


class BatchArguments(ArgumentsCodec[object]):
    """The items of a batch task. An item is given as it is, or by the names of its fields."""

    def __init__(self, name: str, function: Callable[..., Any], encoding: Encoding) -> None:
        hints = hints_of(name, function)
        parameters = list(inspect.signature(function).parameters)
        hint = hints.get(parameters[0]) if len(parameters) == _ONE else None
        if get_origin(hint) is not list:
            cause = f"Task {name!r} takes batches, so its only parameter must be a list of items, one per job"
            raise InvalidArgument(f"{cause}, such as `rows: list[Row]`.")
        (item,) = get_args(hint)
        self.parameters = _fields_of(item)
        super().__init__(name, item, _answer_of(hints.get("return", Any)), encoding)

    def encode(self, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[bytes, object]:
        """Return the payload of a job, and its item; see ``ArgumentsCodec``."""
        if len(args) + bool(kwargs) > _ONE:
            raise self._invalid("a job takes one item, or its fields by name")
        try:
            payload: bytes = self._encode(args[0] if args else kwargs)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._invalid(str(error)) from error
        return payload, self._checked(payload)

    def decode(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return the item of a job as the only positional argument."""
        return [self._checked(payload)], {}

    def derived(self, source: str | Callable[..., Any], arguments: object) -> object:
        """Return a field of an item, or what a function returns for it."""
        if not isinstance(source, str):
            return source(arguments)
        value: object = getattr(arguments, source)
        return value


def _fields_of(item: object) -> tuple[str, ...]:
    """Return the names of the fields of a Struct, a dataclass or a model of pydantic; none for other types."""
    models: Mapping[str, object] | None = getattr(item, "model_fields", None)
    if models is not None:
        return tuple(models)
    kind = type_info(item)
    return tuple(field.name for field in kind.fields) if isinstance(kind, StructType | DataclassType) else ()


def _answer_of(hint: object) -> object:
    """Return the type of what the function returns for one job."""
    lists = [each for each in (hint, *get_args(hint)) if get_origin(each) is list]
    return get_args(lists[0])[0] if lists else Any
