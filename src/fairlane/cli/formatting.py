"""Values as text: for people, and as JSON for programs."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

_KIB = 1024
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}


def printable(text: str) -> str:
    """Return text that is safe to print: characters that could control a terminal become escapes."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def as_json(thing: object) -> str:
    """Return one line of JSON. Bytes become text if they are UTF-8, otherwise base64 under ``NAME_base64``."""
    import msgspec  # errors use this module too, and the help imports no more than it needs

    plain = msgspec.to_builtins(thing, builtin_types=(bytes,), str_keys=True)
    return json.dumps(_without_bytes(plain), ensure_ascii=False)


def _without_bytes(thing: object) -> object:
    if isinstance(thing, dict):
        return dict(_json_field(str(name), value) for name, value in thing.items())
    if isinstance(thing, (list, tuple)):
        return [_without_bytes(part) for part in thing]
    return thing


def _json_field(name: str, value: object) -> tuple[str, object]:
    if not isinstance(value, bytes):
        return name, _without_bytes(value)
    try:
        return name, value.decode()
    except UnicodeDecodeError:
        return f"{name}_base64", base64.b64encode(value).decode()


def excerpt(payload: bytes | None, length_max: int = 60) -> str:
    """Return the beginning of a payload as printable text."""
    if payload is None:
        return ""
    bytes_max = length_max * 4  # no character has more than four bytes
    text = printable(payload[:bytes_max].decode(errors="backslashreplace"))
    return text if len(text) <= length_max and len(payload) <= bytes_max else text[:length_max] + "…"


def message_count(count: int) -> str:
    """Return a number of messages, such as ``1 message`` or ``12 messages``."""
    return f"{count} message{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """Return a number of bytes in a readable unit."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < _KIB:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIB
    return f"{amount:.1f} TiB"


def duration(span_ms: int) -> str:
    """Return a timespan in one or two units, such as ``1h30m``; fractions of a second only below ten seconds."""
    if span_ms < 0:
        return "-" + duration(-span_ms)
    if span_ms < _UNITS_MS["s"]:
        return f"{span_ms}ms"
    if span_ms < 10 * _UNITS_MS["s"]:
        return f"{span_ms / _UNITS_MS['s']:.1f}".removesuffix(".0") + "s"
    for unit, below in (("d", "h"), ("h", "m"), ("m", "s")):
        whole, rest = divmod(span_ms, _UNITS_MS[unit])
        if whole:
            part = rest // _UNITS_MS[below]
            return f"{whole}{unit}" + (f"{part}{below}" if part else "")
    return f"{span_ms // _UNITS_MS['s']}s"


def instant(at_ms: int | None) -> str:
    """Return an instant in UTC."""
    if at_ms is None:
        return "-"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def now_ms() -> int:
    """Return the current instant, in milliseconds since the epoch."""
    return int(datetime.now(UTC).timestamp() * 1000)


def age(at_ms: int | None, now: int) -> str:
    """Return how long ago something happened."""
    return "-" if at_ms is None else duration(max(0, now - at_ms))
