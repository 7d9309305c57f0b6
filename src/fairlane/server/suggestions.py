"""Suggestions for misspelled fields and values in requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from fairlane.model.bounds import LIMIT
from fairlane.model.spelling import did_you_mean

_FIELD: Final = re.compile(r"unknown field `(.+?)`")
_WORD: Final = re.compile(r"Invalid enum value '(.+?)'")


def suggestion(shape: type[msgspec.Struct], fault: str, path: str) -> str:
    """Return a question that names the likely spelling, or an empty text.

    Args:
        shape: the type of the request.
        fault: the error message of msgspec.
        path: where in the request the error is, such as ``policy.backpressure`` or ``messages[0]``.
    """
    kind = _kind_at(shape, path)
    if (field := _FIELD.search(fault)) is not None:
        return did_you_mean(field[1], [name for part in _structs(kind) for name in part.__struct_fields__])
    if (word := _WORD.search(fault)) is not None:
        return did_you_mean(word[1], _words(kind))
    return ""


def limit_of(shape: type[msgspec.Struct], path: str, most: int) -> str | None:
    """Return the name of the limit of this value that a list or map in a request has exceeded, or None."""
    metas = [part for part in _parts(_kind_at(shape, path)) if isinstance(part, msgspec.Meta)]
    return next((str(meta.extra[LIMIT]) for meta in metas if meta.max_length == most and meta.extra), None)


def _kind_at(shape: type[msgspec.Struct], path: str) -> object:
    kind: object = shape
    for name in re.findall(r"[A-Za-z_]\w*", path):
        all_hints = [get_type_hints(each, include_extras=True) for each in _structs(kind)]
        kind = next((hints[name] for hints in all_hints if name in hints), None)
    return kind


def _parts(kind: object) -> Iterator[object]:
    yield kind
    for part in get_args(kind):
        yield from _parts(part)


def _structs(kind: object) -> list[type[msgspec.Struct]]:
    return [part for part in _parts(kind) if isinstance(part, type) and issubclass(part, msgspec.Struct)]


def _words(kind: object) -> list[str]:
    return [word for part in _parts(kind) if get_origin(part) is Literal for word in get_args(part)]
