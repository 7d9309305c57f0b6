"""Bring the ``.proto`` files up to date with the table of verbs.

What is in the files stays as it is, so that the numbers of fields never change: the tool adds the methods, messages and
fields that are missing, each with the next number. With ``--check`` it only reports whether something is missing.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from fairlane.model.message import Key
from fairlane.model.policy import QueuePolicy
from fairlane.verbs.errors import ErrorBody
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Verb

PROTO = Path(__file__).parent.parent / "src/fairlane/wire/grpc/proto/fairlane/v1"
FILES = {"Broker": "broker", "Admin": "admin", "Batches": "batches"}
SCALARS = {str: "string", int: "int64", float: "double", bool: "bool", bytes: "bytes"}
NAMES: dict[type[msgspec.Struct], str] = {ErrorBody: "Error"}
OTHERWISE = {
    ("CreateQueueRequest", "policy"),  # a QueuePolicy whose unset fields are not given
    ("EnsureQueueRequest", "policy"),
    ("UpdateQueueRequest", "policy"),  # a QueuePolicy, and the names of the fields to reset
    ("SetConfigRequest", "values"),  # a map can't hold null: what to remove is a list
    ("ReadJournalResponse", "events"),  # each is an object of JSON
    ("TryHookResponse", "answer"),  # a oneof
    ("ForwardRequest", "messages"),  # a map can't hold lists
    ("FanOutRequest", "messages"),
    ("EnqueueRequest", "numbers"),  # a list of numbers could be packed, and not be counted before it is decoded
}
"""Fields that protobuf says in another way; ``fairlane.server.interfaces.grpc_shapes`` has how."""
PARTIAL = frozenset((QueuePolicy,))
"""Messages that requests give in part, so that a field which is not given differs from one that is 0."""


class Files:
    """The files, as they are and as they should be."""

    def __init__(self) -> None:
        self.texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(PROTO.glob("*.proto"))}

    def add_verb(self, verb: Verb) -> None:
        """Add what is missing of a verb."""
        file = FILES[verb.service]
        found = re.search(rf"\brpc {verb.method}\((\w+)\) returns \((\w+)\);", self.texts[file])
        if found is None:
            request, answer = f"{verb.method}Request", self._answer_name(verb)
            summary = (verb.request.__doc__ or "").partition("\n")[0]
            rpc = f"  // {summary}\n  rpc {verb.method}({request}) returns ({answer});\n"
            self.texts[file] = re.sub(
                rf"(service {verb.service} {{.*?)(\n}}\n)",
                rf"\1\n{rpc.rstrip()}\2",
                self.texts[file],
                count=1,
                flags=re.DOTALL,
            )
        else:
            request, answer = found.groups()
        self._add_message(file, request, verb.request)
        self._add_message(file, answer, verb.answer)

    def _answer_name(self, verb: Verb) -> str:
        name = NAMES.get(verb.answer, verb.answer.__name__)
        return name if self._has(name) or verb.answer.__struct_fields__ else f"{verb.method}Response"

    def _has(self, name: str) -> bool:
        return any(re.search(rf"\bmessage {name} {{", text) for text in self.texts.values())

    def _add_message(self, file: str, name: str, struct: type[msgspec.Struct]) -> None:
        """Add a message, or the fields that it lacks, and those of the structs in it."""
        if not self._has(name):
            doc = (struct.__doc__ or "").partition("\n")[0]
            self.texts[file] += f"\n// {doc}\nmessage {name} {{}}\n"
        home = next(at for at, text in self.texts.items() if re.search(rf"\bmessage {name} {{", text))
        body = re.search(rf"\bmessage {name} {{(|.*?\n)}}\n", self.texts[home], re.DOTALL)
        assert body is not None  # noqa: S101 - it was added above
        known = dict(re.findall(r"(\w+) = (\d+);", body.group(1)))
        lines = []
        for field in msgspec.structs.fields(struct):
            if field.name in known or (name, field.name) in OTHERWISE:
                continue
            number = max(map(int, known.values()), default=0) + 1
            known[field.name] = str(number)
            declared = _declared(field, has_presence=struct in PARTIAL)
            lines.append(f"  {declared} {field.name} = {number};")
        if lines:
            inner = body.group(1).rstrip("\n")
            text = f"message {name} {{" + inner + "\n" + "\n".join(lines) + "\n}\n"
            self.texts[home] = self.texts[home].replace(body.group(), text, 1)
        hints = get_type_hints(struct)
        for field in msgspec.structs.fields(struct):
            if (name, field.name) not in OTHERWISE:
                for inner_struct in _structs_in(hints[field.name]):
                    self._add_message(home, NAMES.get(inner_struct, inner_struct.__name__), inner_struct)


def _declared(field: msgspec.structs.FieldInfo, *, has_presence: bool) -> str:
    """Return the type of a field, with ``optional`` where it matters whether it is set."""
    kind, is_optional = _kind(field.type)
    is_plain = field.default is msgspec.NODEFAULT or not field.default
    if kind.startswith(("repeated", "map")) or kind not in SCALARS.values():
        return kind
    return f"optional {kind}" if is_optional or not is_plain or has_presence else kind


def _kind(hint: Any) -> tuple[str, bool]:  # noqa: ANN401 - any annotation
    """Return the type in protobuf, and whether None is allowed."""
    if hint == Key:
        return "repeated string", False
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        rest = [each for each in arguments if each is not type(None)]
        if set(rest) >= set(get_args(Key)):
            return "repeated string", True
        return _kind(rest[0])[0], True
    if origin is Annotated:  # a list with a maximum length
        return _kind(arguments[0])
    if origin is Literal:
        return "string", False
    if origin is dict or (isinstance(origin, type) and issubclass(origin, dict)) or "Mapping" in str(origin):
        return f"map<string, {_kind(arguments[1])[0]}>", False
    if origin in (list, tuple):
        return f"repeated {_kind(arguments[0])[0]}", False
    return SCALARS.get(hint) or NAMES.get(hint, hint.__name__), False


def _structs_in(hint: Any) -> Iterator[type[msgspec.Struct]]:  # noqa: ANN401 - see _kind
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for each in get_args(hint):
        yield from _structs_in(each)


def main() -> int:
    """Write the files, or check them."""
    files = Files()
    before = dict(files.texts)
    for verb in VERBS.values():
        files.add_verb(verb)
    stale = [name for name, text in files.texts.items() if text != before[name]]
    if "--check" in sys.argv:
        if stale:
            print(f"{', '.join(stale)}.proto: something is missing; run tools/make_proto.py.")
        return 1 if stale else 0
    for name in stale:
        (PROTO / f"{name}.proto").write_text(files.texts[name], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
