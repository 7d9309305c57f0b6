"""Checks of new messages. Everything else relies on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlane.errors import FairlaneError, InvalidArgument, PayloadTooLarge
from fairlane.model import limits
from fairlane.model.message import PRIORITY_NAMES, Key, NewMessage
from fairlane.verbs.columns import MessageColumns


def are_bare(messages: Sequence[NewMessage]) -> bool:
    """Return whether no message asks for more than its fairness key."""
    if type(messages) is MessageColumns:
        return True
    for message in messages:
        if (
            message.weight is not None
            or message.cost is not None
            or message.priority is not None
            or message.throttles != ()
            or message.delay_ms != 0
            or message.deadline_ms is not None
            or message.max_attempts is not None
            or message.visibility_timeout_ms is not None
            or message.result_ttl_ms is not None
            or message.upload is not None
            or message.order_key is not None
            or message.unique_key is not None
        ):
            return False
    return True


def are_plainly_sound(messages: Sequence[NewMessage], payload_bytes_max: int) -> bool:
    """Return whether all bare messages are valid and have no headers. If False, check each one."""
    if type(messages) is MessageColumns:
        return _are_sound_columns(messages, payload_bytes_max)
    key_length_max, dedup_id_length_max = limits.KEY_LENGTH_MAX, limits.DEDUP_ID_LENGTH_MAX
    for message in messages:
        payload = message.payload
        if type(payload) is not bytes or len(payload) > payload_bytes_max:
            return False
        if message.headers or message.correlation_id is not None:
            return False
        key = message.fairness_key
        if key is not None and not (type(key) is str and 0 < len(key) <= key_length_max and key.isascii()):
            return False
        dedup_id = message.dedup_id
        if dedup_id is not None and not (  # as text_fault says, but a call for each would double the time
            type(dedup_id) is str and 0 < len(dedup_id) <= dedup_id_length_max and dedup_id.isprintable()
        ):
            return False
    return True


def _are_sound_columns(messages: MessageColumns, payload_bytes_max: int) -> bool:
    if max(messages.payloads.sizes, default=0) > payload_bytes_max:
        return False
    names = [key for key in set(messages.keys) if key is not None]
    return all(0 < len(name) <= limits.KEY_LENGTH_MAX and name.isascii() for name in names)


def message_fault(message: NewMessage, payload_bytes_max: int) -> FairlaneError | None:
    """Return what is wrong with a new message, or None if nothing is."""
    payload = message.payload
    if type(payload) is not bytes:
        return InvalidArgument(f"A payload must be bytes, not {type(payload).__name__}.")
    if len(payload) > payload_bytes_max:
        return PayloadTooLarge(f"The payload has {len(payload)} bytes; payload_bytes_max is {payload_bytes_max}.")
    fault = _headers_fault(message.headers) if message.headers else None
    if fault is None and message.fairness_key is not None:
        fault = key_fault(message.fairness_key)
    if fault is None and (message.dedup_id is not None or message.correlation_id is not None):
        fault = _ids_fault(message)
    if fault is None and not are_bare((message,)):
        fault = _terms_fault(message)
    return None if fault is None else InvalidArgument(fault)


def is_text(text: str) -> bool:
    """Return whether a text can be encoded: lone surrogates can't."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def key_fault(key: Key) -> str | None:
    """Return what is wrong with a fairness key, or None if nothing is."""
    if type(key) is str:
        if not is_text(key):
            return f"A fairness key must be valid Unicode text, not {key!r:.100}."
        if 0 < len(key) <= limits.KEY_LENGTH_MAX:
            return None
        return f"A fairness key must have 1 to {limits.KEY_LENGTH_MAX} characters, not {len(key)}."
    if type(key) is not tuple or not all(type(name) is str and name and is_text(name) for name in key):
        return f"A fairness key must be a non-empty string or a tuple of them, not {key!r:.100}."
    if not 1 <= len(key) <= limits.KEY_DEPTH_MAX:
        return f"A fairness key must have 1 to {limits.KEY_DEPTH_MAX} names, not {len(key)}."
    if sum(map(len, key)) > limits.KEY_LENGTH_MAX:
        return f"A fairness key can have at most {limits.KEY_LENGTH_MAX} characters in total."
    return None


def whole_fault(name: str, value: object, *, least: int, most: int) -> str | None:
    """Return what is wrong with a whole number, or None if nothing is."""
    if type(value) is int and least <= value <= most:
        return None
    return f"{name} must be a whole number from {least} to {most}, not {value!r:.100}."


def text_fault(name: str, value: object, *, most: int) -> str | None:
    """Return what is wrong with a text that must not be empty, or None if nothing is."""
    if type(value) is str and 0 < len(value) <= most and value.isprintable():
        return None
    return f"{name} must be printable text of 1 to {most} characters, not {value!r:.100}."


def _headers_fault(headers: object) -> str | None:
    if type(headers) is not dict and not isinstance(headers, Mapping):
        return f"Headers must be a mapping of text to text, not {type(headers).__name__}."
    if len(headers) > limits.HEADERS_MAX:
        return f"A message can have at most {limits.HEADERS_MAX} headers, not {len(headers)}."
    size = 0
    for name, value in headers.items():
        if type(name) is not str or type(value) is not str or not (is_text(name) and is_text(value)):
            return f"Header names and values must be text, not {name!r:.100}: {value!r:.100}."
        size += len(name) + len(value)
    if size > limits.HEADERS_LENGTH_MAX:
        return f"Headers can have at most {limits.HEADERS_LENGTH_MAX} characters in total, not {size}."
    return None


def _ids_fault(message: NewMessage) -> str | None:
    if message.dedup_id is not None:
        fault = text_fault("A dedup id", message.dedup_id, most=limits.DEDUP_ID_LENGTH_MAX)
        if fault is not None:
            return fault
    if message.correlation_id is None:
        return None
    if not (isinstance(message.correlation_id, str) and message.correlation_id.isascii()):
        return f"A correlation id must be ASCII text, not {message.correlation_id!r:.100}."
    return text_fault("A correlation id", message.correlation_id, most=limits.CORRELATION_ID_LENGTH_MAX)


def _terms_fault(message: NewMessage) -> str | None:
    spans = limits.TIMESPAN_MS_MAX
    faults = [
        whole_fault("weight", 1 if message.weight is None else message.weight, least=1, most=limits.WEIGHT_MAX),
        whole_fault("cost", 1 if message.cost is None else message.cost, least=1, most=limits.COST_MAX),
        whole_fault("delay_ms", message.delay_ms, least=0, most=spans),
        whole_fault("deadline_ms", 1 if message.deadline_ms is None else message.deadline_ms, least=1, most=spans),
    ]
    own_limits = (
        ("max_attempts", message.max_attempts, 0, limits.BATCH_MAX),
        ("visibility_timeout_ms", message.visibility_timeout_ms, 1, spans),
        ("result_ttl_ms", message.result_ttl_ms, 0, spans),
    )
    faults += [
        whole_fault(name, own, least=least, most=most) for name, own, least, most in own_limits if own is not None
    ]
    if message.order_key is not None:
        faults.append(text_fault("An order key", message.order_key, most=limits.ORDER_KEY_LENGTH_MAX))
    if message.unique_key is not None:
        faults.append(text_fault("A unique key", message.unique_key, most=limits.UNIQUE_KEY_LENGTH_MAX))
    if message.priority is not None and message.priority not in PRIORITY_NAMES:
        faults.append(f"priority must be one of {', '.join(PRIORITY_NAMES)}, not {message.priority!r:.100}.")
    if message.throttles:
        faults.append(_throttles_fault(message.throttles))
    if message.upload is not None:
        faults.append(text_fault("An upload", message.upload, most=limits.UPLOAD_ID_LENGTH_MAX))
        if message.payload:
            faults.append("A message can have a payload or an upload, not both.")
    return next((fault for fault in faults if fault is not None), None)


def _throttles_fault(throttles: tuple[str, ...]) -> str | None:
    if type(throttles) not in (tuple, list):
        return f"throttles must be a tuple of names, not {throttles!r:.100}."
    if len(throttles) > limits.THROTTLES_MAX:
        return f"A message can have at most {limits.THROTTLES_MAX} throttles, not {len(throttles)}."
    faults = (text_fault("A throttle", name, most=limits.THROTTLE_NAME_LENGTH_MAX) for name in throttles)
    return next((fault for fault in faults if fault is not None), None)
