"""Messages from command-line options, lines of text and lines of JSON."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedIOBase
from typing import Any

import msgspec

from fairlane.errors import InvalidArgument
from fairlane.model.durations import milliseconds
from fairlane.model.message import NewMessage

Numbered = tuple[int, NewMessage | InvalidArgument]
"""The number of a line, and its message or the reason why it is not valid."""
Lines = Iterable[bytes | None]
"""Lines without their line breaks, and None where the next one may take a while."""
_CHUNK = 1024 * 1024


def lines_of(stream: BufferedIOBase) -> Iterator[bytes | None]:
    """Yield the lines of a stream as they arrive."""
    rest = b""
    while chunk := stream.read1(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.removesuffix(b"\r") for line in lines)
        yield None
    if rest:
        yield rest


def message_of(payload: bytes, options: Mapping[str, Any]) -> NewMessage:
    """Return a message with the terms from the options of ``enqueue``."""
    return NewMessage(
        payload=payload,
        headers=dict(options["headers"]),
        fairness_key=options["key"],
        weight=options["weight"],
        cost=options["cost"],
        priority=options["priority"],
        throttles=tuple(options["throttles"]),
        delay_ms=options["delay"] or 0,
        deadline_ms=options["deadline"],
        dedup_id=options["dedup_id"],
        correlation_id=options["correlation_id"],
        max_attempts=options["max_attempts"],
        visibility_timeout_ms=options["visibility_timeout"],
        result_ttl_ms=options["result_ttl"],
        order_key=options["order_key"],
        unique_key=options["unique_key"],
    )


def from_lines(lines: Lines, base: NewMessage, *, is_json: bool, dedup_prefix: str | None) -> Iterator[Numbered | None]:
    """Yield a message for each line, with the terms of ``base``; None where the next line may take a while.

    A line is a payload, or with ``is_json`` an object whose fields win over ``base``. Empty lines of JSON are skipped.
    """
    number = 0
    for line in lines:
        if line is None:
            yield None
            continue
        number += 1
        if is_json and not line.strip():
            continue
        try:
            made = _from_json(line, base) if is_json else msgspec.structs.replace(base, payload=line)
            yield number, _with_dedup_id(made, dedup_prefix, number)
        except ValueError as error:
            yield number, InvalidArgument(f"{str(error).removesuffix('.')}.")


def _with_dedup_id(message: NewMessage, prefix: str | None, number: int) -> NewMessage:
    if prefix is None or message.dedup_id is not None:
        return message
    return msgspec.structs.replace(message, dedup_id=f"{prefix}:{number}")


def _from_json(line: bytes, base: NewMessage) -> NewMessage:
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError('Expected a JSON object such as {"payload": "hello"}.')
    payload = _payload(fields)
    for span in ("delay", "deadline", "visibility_timeout", "result_ttl"):
        if span in fields:
            fields[f"{span}_ms"] = milliseconds(str(fields.pop(span)))
    if "headers" in fields and isinstance(fields["headers"], dict):
        fields["headers"] = {**base.headers, **fields["headers"]}
    known = {name: getattr(base, name) for name in NewMessage.__struct_fields__}
    return msgspec.convert(known | fields | {"payload": payload}, NewMessage)


def _payload(fields: dict[str, Any]) -> bytes:
    """Remove the payload from the fields and return it: text as it is, base64 decoded, any other value as JSON."""
    if "payload_base64" in fields:
        try:
            return base64.b64decode(fields.pop("payload_base64"), validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise ValueError(f"Invalid base64 in payload_base64: {error}") from error
    if "payload" not in fields:
        raise ValueError("The line has no payload; set payload or payload_base64.")
    payload = fields.pop("payload")
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    return text.encode()
