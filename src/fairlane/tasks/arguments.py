"""The parameters of a task as one type, which encodes the arguments of a call and checks them on both sides.

The payload is a JSON object of the arguments by name. An argument that the caller leaves out is not in it, so the
default in the worker's function applies, not the one in the program that sends.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from fairlane.client.message_fields import MessageFields
from fairlane.errors import InvalidArgument
from fairlane.model.payloads import from_plain, to_plain
from fairlane.model.spelling import did_you_mean

Encoding = Literal["json", "msgpack"]
E = TypeVar("E")
EncodedArguments: TypeAlias = msgspec.Struct
"""The arguments of one call: a field for each parameter."""
_PATH: Final = re.compile(r"^(.*) - at `\$(.*)`$", re.DOTALL)
_NAMED: Final = re.compile(r"^Object (missing required|contains unknown) field `(.*)`$")
_CODECS: Final[dict[Encoding, Any]] = {"json": msgspec.json, "msgpack": msgspec.msgpack}
_UNENCODABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
_REFUSED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


class ArgumentsInvalid(InvalidArgument):
    """The arguments of a task do not fit its parameters."""


class ArgumentsCodec(ABC, Generic[E]):
    """Encodes the arguments of a task, and checks them on both sides.

    Attributes:
        answer: the annotated type of what becomes the result of a job.
        takes_message: whether the function gets the message as its first argument.
        parameters: the names by which arguments can be given.
    """

    takes_message = False
    parameters: Collection[str]

    def __init__(self, name: str, kind: object, answer: object, encoding: Encoding) -> None:
        self._name = name
        self.answer = answer
        self._codec = codec = _CODECS[encoding]
        self._encode = codec.Encoder(enc_hook=to_plain).encode
        try:
            self._decode = codec.Decoder(kind, dec_hook=from_plain).decode
        except TypeError as error:
            raise InvalidArgument(f"Task {name!r} has a parameter of a type that cannot be sent: {error}.") from error

    @abstractmethod
    def encode(self, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[bytes, E]:
        """Return the payload of a call, and its arguments.

        The payload is decoded as the worker will do, so what is sent can be called there. Raises ArgumentsInvalid.
        """

    @abstractmethod
    def decode(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments from a payload. Raises ArgumentsInvalid."""

    @abstractmethod
    def derived(self, source: str | Callable[..., Any], arguments: E) -> object:
        """Return what the name of a parameter or a function makes of arguments."""

    def encode_answer(self, answer: object) -> bytes:
        """Return what the function returned as bytes. Raises TypeError if it has no encoding."""
        encoded: bytes = self._encode(answer)
        return encoded

    def decode_answer(self, result: bytes) -> object:
        """Return what the function returned, as its annotated type where that can be decoded."""
        value: object
        try:
            value = self._codec.decode(result, type=self.answer, dec_hook=from_plain)
        except TypeError:  # a union with verdicts, for example
            value = self._codec.decode(result)
        return value

    def _checked(self, payload: bytes) -> E:
        try:
            arguments: E = self._decode(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self._invalid(_explained(str(error))) from error
        return arguments

    def _invalid(self, fault: str) -> ArgumentsInvalid:
        return ArgumentsInvalid(f"Invalid arguments of task {self._name!r}: {fault}{'' if fault[-1] in '.?' else '.'}")


class TaskArguments(ArgumentsCodec[EncodedArguments]):
    """The arguments of one function, by the names of its parameters."""

    def __init__(self, name: str, function: Callable[..., Any], encoding: Encoding) -> None:
        hints = hints_of(name, function)
        parameters = dict(inspect.signature(function).parameters)
        first = next(iter(parameters), None)
        self.takes_message = first is not None and _is_message(hints.get(first))
        if self.takes_message and first is not None:
            del parameters[first]
        self.parameters: Mapping[str, inspect.Parameter] = parameters
        self._type = _type_of(name, parameters, hints)
        super().__init__(name, self._type, hints.get("return", Any), encoding)
        self._has_defaults = any(each.default is not each.empty for each in parameters.values())
        self._positional = [name for name, each in parameters.items() if each.kind is not each.KEYWORD_ONLY]
        self._has_keywords = len(self._positional) < len(parameters)

    def encode(self, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[bytes, EncodedArguments]:
        """Return the payload of a call, and its arguments; see ``ArgumentsCodec``."""
        if len(args) > len(self._positional):
            takes = f"{len(self._positional)} {'positional ' if self._has_keywords else ''}arguments"
            raise ArgumentsInvalid(f"Task {self._name!r} takes {takes}, got {len(args)}.")
        given = dict(zip(self._positional, args, strict=False))
        if twice := given.keys() & kwargs.keys():
            raise ArgumentsInvalid(f"Task {self._name!r} got argument {min(twice)} twice.")
        try:
            arguments = self._type(**given, **kwargs)
        except TypeError as error:
            raise self._invalid(f"{error}{self._suggested(kwargs)}") from error
        try:
            payload: bytes = self._encode(arguments)
        except _UNENCODABLE as error:
            raise self._invalid(f"{self._first_unencodable(arguments)}{error}") from error
        self._checked(payload)
        return payload, arguments

    def decode(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments from a payload. Raises ArgumentsInvalid."""
        arguments = self._checked(payload)
        if not self._has_defaults and not self._has_keywords:
            return [getattr(arguments, name) for name in self.parameters], {}
        values = self.values(arguments)
        return [], values

    def values(self, arguments: EncodedArguments) -> dict[str, Any]:
        """Return the arguments that were given, by name."""
        named = {name: getattr(arguments, name) for name in self.parameters}
        return {name: value for name, value in named.items() if value is not UNSET}

    def complete(self, arguments: EncodedArguments) -> dict[str, Any]:
        """Return all arguments by name; those that were not given have their defaults."""
        return {name: each.default for name, each in self.parameters.items()} | self.values(arguments)

    def derived(self, source: str | Callable[..., Any], arguments: EncodedArguments) -> object:
        """Return one argument, or its default if it was not given, or what a function returns for all of them."""
        if not isinstance(source, str):
            return source(**self.complete(arguments))
        value: object = getattr(arguments, source)
        return self.parameters[source].default if value is UNSET else value

    def _suggested(self, kwargs: Mapping[str, object]) -> str:
        """Return a question about the first argument that is no parameter, or nothing."""
        unknown = next((name for name in kwargs if name not in self.parameters), None)
        return "" if unknown is None else f".{did_you_mean(unknown, self.parameters)}"

    def _first_unencodable(self, arguments: EncodedArguments) -> str:
        """Return the name of the first argument that has no encoding, as the beginning of an error."""
        for name, value in self.values(arguments).items():
            try:
                self._encode(value)
            except _UNENCODABLE:
                return f"{name}: "
        return ""


def hints_of(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of the function of a task as types."""
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        cause = f"Task {name!r} has an annotation that cannot be resolved: {error}"
        raise InvalidArgument(f"{cause}. Define the type at module level, above the task.") from error


def _is_message(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, MessageFields)


def _type_of(name: str, parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]) -> type[msgspec.Struct]:
    fields: list[Any] = []
    for parameter in parameters.values():
        if parameter.name in ("self", "cls") and parameter.name not in hints:
            raise InvalidArgument(f"Task {name!r} is a method; a task must be a plain function.")
        if parameter.kind in _REFUSED:
            cause = f"Task {name!r} has the parameter {parameter}"
            raise InvalidArgument(f"{cause}; every parameter of a task needs a name, so that it can be sent.")
        hint = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint | UnsetType if hint is not Any else Any, UNSET))
    return msgspec.defstruct(name, fields, frozen=True, kw_only=True, forbid_unknown_fields=True)


def _explained(fault: str) -> str:
    """Return what is wrong with arguments, with the name of the argument first."""
    if (named := _NAMED.match(fault)) is not None:
        return f"{named[2]}: {'missing' if named[1].startswith('missing') else 'there is no such parameter'}"
    path = ""
    while (placed := _PATH.match(fault)) is not None:  # a model of pydantic adds the path inside itself
        fault, path = placed[1], f"{path}{placed[2]}"
    return f"{path.removeprefix('.')}: {fault}" if path else fault
