"""Decoding of what a newer program sent: fields and frames that this version does not know are left out.

A server refuses unknown fields of a request, so that a misspelt one is not lost silently. The types of requests say so,
and answers share some of them, such as a queue's policy. But what a client reads may come from a server that is newer
than itself, and an addition must not break it. So only if strict decoding fails, the value is decoded without a type,
and what the type doesn't have is removed. Between programs of the same version that never happens, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from fairlane.wire.frames import is_many

Bytes: TypeAlias = bytes | msgspec.Raw
Kind: TypeAlias = Any
"""A type, or a union of types."""
Decoded: TypeAlias = Any
"""A value of a type that is known only at run time."""
_encode = msgspec.msgpack.Encoder().encode
_parts = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_tag = msgspec.msgpack.Decoder(int).decode
_type_of: Callable[[Kind], inspect.Type] = cache(inspect.type_info)


def answer_decoder(kind: Kind) -> Callable[[Bytes], Decoded]:
    """Return a function that decodes a type from msgpack, and leaves out the fields that the type doesn't have."""
    strict = msgspec.msgpack.Decoder(kind).decode

    def decode(data: Bytes) -> Decoded:
        try:
            return strict(data)
        except msgspec.ValidationError:
            return strict(_encode(_known(msgspec.msgpack.decode(data), _type_of(kind))))

    return decode


def known_frames(data: bytes, kind: Kind) -> list[Decoded]:
    """Return the frames in a message, without those that ``kind`` doesn't have, and without unknown fields.

    Raises:
        msgspec.DecodeError: the message is malformed.
    """
    decode, tags = answer_decoder(kind), {each.tag for each in _structs_of(_type_of(kind))}
    frames: list[Bytes] = [*_parts(data)] if is_many(data) else [data]
    return [decode(frame) for frame in frames if _tag_of(frame) in tags]


def _tag_of(frame: Bytes) -> int:
    parts = _parts(frame)
    if not parts:
        raise msgspec.ValidationError("A frame has no tag.")
    return _tag(parts[0])


def _known(value: Decoded, kind: inspect.Type) -> Decoded:
    """Return a value without the fields that a type doesn't have, at any depth."""
    if isinstance(kind, inspect.UnionType):
        fitting = [each for each in kind.types if _may_be(value, each)]
        return _known(value, fitting[0]) if fitting else value
    if isinstance(kind, inspect.Metadata):
        return _known(value, kind.type)
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        return {
            name: _known(each, fields[name]) if name in fields else each
            for name, each in value.items()
            if name in fields or name == kind.tag_field
        }
    if isinstance(kind, inspect.StructType) and isinstance(value, list):
        types = [inspect.AnyType()] * (kind.tag is not None) + [field.type for field in kind.fields]
        return [_known(each, its_kind) for each, its_kind in zip(value, types, strict=False)]
    if isinstance(kind, inspect.DictType) and isinstance(value, dict):
        return {name: _known(each, kind.value_type) for name, each in value.items()}
    if isinstance(kind, inspect.ListType | inspect.VarTupleType) and isinstance(value, list):
        return [_known(each, kind.item_type) for each in value]
    return value


def _may_be(value: object, kind: inspect.Type) -> bool:
    """Return whether a map or an array may be of a type of a union."""
    if isinstance(kind, inspect.StructType):
        if not kind.array_like:
            return isinstance(value, dict) and (kind.tag is None or value.get(kind.tag_field) == kind.tag)
        return isinstance(value, list) and (kind.tag is None or value[:1] == [kind.tag])
    if isinstance(kind, inspect.DictType):
        return isinstance(value, dict)
    return isinstance(kind, inspect.ListType | inspect.VarTupleType) and isinstance(value, list)


def _structs_of(kind: inspect.Type) -> list[inspect.StructType]:
    types = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return [each for each in types if isinstance(each, inspect.StructType)]
