"""Read our ``.proto`` files into descriptors, so that no generated code has to be kept up to date.

This reads the part of the language that the files use: messages with scalar, message, map and optional fields, oneofs,
and services. A test compares the result with that of ``protoc``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    OneofDescriptorProto,
)
from google.protobuf.message_factory import GetMessageClass

PACKAGE: Final = "fairlane.v1"
FILES: Final = ("types", "broker", "batches", "admin")
"""The files, each after those that it imports."""
_PATH: Final = "fairlane/v1"
_WORD = re.compile(r'//[^\n]*|"([^"]*)"|([\w.]+)|([{}()<>;=,])')
_SCALARS: Final = {
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
}


def text_of(name: str) -> str:
    """Return the text of one of the files."""
    return (files(__package__ or "") / "proto" / "fairlane" / "v1" / f"{name}.proto").read_text(encoding="utf-8")


def file_of(name: str, text: str) -> FileDescriptorProto:
    """Return the descriptor of a file."""
    file = FileDescriptorProto(name=f"{_PATH}/{name}.proto", package=PACKAGE, syntax="proto3")
    words = _words(text)
    for word in words:
        if word == "import":
            file.dependency.append(next(words))
            next(words)
        elif word == "message":
            _read_message(words, file.message_type.add(name=next(words)))
        elif word == "service":
            service = file.service.add(name=next(words))
            next(words)
            while next(words) == "rpc":
                method = service.method.add(name=next(words))
                method.input_type, method.client_streaming = _operand(words)
                next(words)
                method.output_type, method.server_streaming = _operand(words)
                next(words)
        else:  # syntax and package, which all files have alike
            while next(words) != ";":
                pass
    return file


def _words(text: str) -> Iterator[str]:
    for found in _WORD.finditer(text):
        if not found.group().startswith("//"):
            yield found.group(1) if found.group(1) is not None else found.group()


def _operand(words: Iterator[str]) -> tuple[str, bool]:
    """Return the type in brackets that a method takes or returns, and whether it is a stream."""
    next(words)
    name = next(words)
    is_stream = name == "stream"
    if is_stream:
        name = next(words)
    next(words)
    return f".{PACKAGE}.{name}", is_stream


def _read_message(words: Iterator[str], message: DescriptorProto) -> None:
    next(words)
    optional: list[FieldDescriptorProto] = []
    while (word := next(words)) != "}":
        if word == "oneof":
            index = len(message.oneof_decl)
            message.oneof_decl.add(name=next(words))
            next(words)
            while (kind := next(words)) != "}":
                _read_field(words, kind, message).oneof_index = index
        elif word == "optional":
            optional.append(_read_field(words, next(words), message))
        elif word == "repeated":
            _read_field(words, next(words), message).label = FieldDescriptorProto.LABEL_REPEATED
        else:
            _read_field(words, word, message)
    # An optional field is the only one of a oneof that protoc makes for it, after all others.
    for field in optional:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.append(OneofDescriptorProto(name=f"_{field.name}"))


def _read_field(words: Iterator[str], kind: str, message: DescriptorProto) -> FieldDescriptorProto:
    """Add the field that follows, up to its semicolon."""
    field = message.field.add(label=FieldDescriptorProto.LABEL_OPTIONAL)
    if kind == "map":
        _, key, _, value, _ = (next(words) for _ in range(5))
        field.name = next(words)
        entry = message.nested_type.add(name=f"{_camel(field.name)}Entry")
        entry.options.map_entry = True
        for number, (name, of) in enumerate((("key", key), ("value", value)), start=1):
            _set_type(entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL), of)
        field.label = FieldDescriptorProto.LABEL_REPEATED
        field.type, field.type_name = (
            FieldDescriptorProto.TYPE_MESSAGE,
            f".{PACKAGE}.{message.name}.{entry.name}",
        )
    else:
        _set_type(field, kind)
        field.name = next(words)
    next(words)
    field.number = int(next(words))
    next(words)
    return field


def _set_type(field: FieldDescriptorProto, kind: str) -> None:
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        field.type = scalar
    else:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{kind}"


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _loaded() -> Any:  # noqa: ANN401 - descriptors have no types of their own
    pool = descriptor_pool.Default()
    for name in FILES:
        pool.AddSerializedFile(file_of(name, text_of(name)).SerializeToString())
    return pool


_POOL: Final = _loaded()


def descriptor_of(name: str) -> Any:  # noqa: ANN401 - see _loaded
    """Return the descriptor of a file, with its services and messages."""
    return _POOL.FindFileByName(f"{_PATH}/{name}.proto")


def message_class(file: str, name: str) -> Any:  # noqa: ANN401 - made at run time
    """Return the class of a message. Raises AttributeError if the file has no such message."""
    found = descriptor_of(file).message_types_by_name.get(name)
    if found is None:
        raise AttributeError(f"{file}.proto has no message {name}.")
    return GetMessageClass(found)


class Stub:
    """Calls the methods of a service over a channel, each under its own name."""

    def __init__(self, service: Any, channel: Any) -> None:  # noqa: ANN401 - descriptors, and channels of both kinds
        for method in service.methods:
            streams = (method.client_streaming, method.server_streaming)
            kind = channel.stream_stream if all(streams) else channel.unary_unary
            call = kind(
                f"/{service.full_name}/{method.name}",
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            setattr(self, method.name, call)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - set above; this is for type checkers
        raise AttributeError(name)
