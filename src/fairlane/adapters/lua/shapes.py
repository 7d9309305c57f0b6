"""Conversion of questions to flat values for a sandbox, and of its flat values to answers, checked field by field.

A script may return anything. A value that a field cannot hold makes the field None, and its default applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from math import floor, isfinite
from typing import Any

from fairlane.adapters.lua.sandbox import Value, encode
from fairlane.model import limits
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.message import PRIORITY_NAMES, Key
from fairlane.ports.hooks import EnqueueQuestion, FailureQuestion

_PRIORITIES = {name.encode(): rank for rank, name in enumerate(PRIORITY_NAMES)}


def flatten_enqueue(question: EnqueueQuestion, numbers: list[int], texts: list[bytes]) -> None:
    """Append the values that ``on_enqueue`` receives for a message."""
    headers = question.headers
    numbers += (question.payload_size, len(headers))
    _flatten_headers(headers, texts)


def flatten_failure(question: FailureQuestion, numbers: list[int], texts: list[bytes]) -> None:
    """Append the values that ``on_failure`` receives for a failed attempt."""
    headers = question.headers
    numbers += (question.attempts, len(headers))
    texts += (encode(question.id), encode(question.error), encode(question.reason))
    _flatten_headers(headers, texts)


def _flatten_headers(headers: Mapping[str, str], texts: list[bytes]) -> None:
    begin = len(texts)
    try:
        texts += map(str.encode, chain.from_iterable(headers.items()))
    except UnicodeEncodeError:  # a lone surrogate: too rare to check every text for it
        texts[begin:] = map(encode, chain.from_iterable(headers.items()))


def read_enqueue_answers(values: tuple[Any, ...]) -> tuple[list[EnqueueAnswer | None], int]:
    """Return the answers in these values, None for one that is not UTF-8, and how many are None.

    Each answer is: the key, or the length of a path and its names; the number of throttles and their names, or None;
    the weight; whether the other five fields follow; those fields. The prelude passes only strings as names and only
    numbers as numbers.
    """
    answers: list[EnqueueAnswer | None] = []
    bad = at = 0
    end = len(values)
    while at < end:
        key = values[at]
        names: tuple[bytes, ...] = ()
        if type(key) is int:
            names = values[at + 1 : at + 1 + key]
            at += key
        count = values[at + 1]
        at_throttles = at + 2
        at = at_throttles + (count or 0)
        weight, has_more = values[at], values[at + 1]
        at += 7 if has_more else 2
        try:
            fairness_key = _key(key, names)
            throttles = None if count is None else _throttles(values[at_throttles : at_throttles + count])
        except UnicodeDecodeError:
            answers.append(None)
            bad += 1
            continue
        if type(weight) is not int or not 1 <= weight <= limits.WEIGHT_MAX:
            weight = _weight(weight)
        if has_more:
            answers.append(_full_answer(fairness_key, weight, throttles, values[at - 5 : at]))
        else:
            answers.append(EnqueueAnswer(fairness_key=fairness_key, weight=weight, throttles=throttles))
    return answers, bad


def read_failure_answers(values: tuple[Any, ...]) -> tuple[list[FailureAnswer | None], int]:
    """Return the answers in these values, none of them None. Each is whether the message is dead, and the delay."""
    answers: list[FailureAnswer | None] = []
    for is_dead, delay_ms in zip(values[::2], values[1::2], strict=True):
        answers.append(FailureAnswer(is_dead=is_dead, delay_ms=None if is_dead else _timespan_ms(delay_ms)))
    return answers, 0


def _full_answer(
    key: Key | None, weight: int | None, throttles: tuple[str, ...] | None, more: tuple[Value, ...]
) -> EnqueueAnswer:
    cost, priority, cap, delay_ms, deadline_ms = more
    return EnqueueAnswer(
        fairness_key=key,
        weight=weight,
        throttles=throttles,
        cost=_whole(cost, least=1, most=limits.COST_MAX),
        priority=_priority(priority),
        cap=_whole(cap, least=0, most=limits.CAP_MAX),
        delay_ms=_timespan_ms(delay_ms),
        deadline_ms=_timespan_ms(deadline_ms),
    )


def _key(key: Value, names: tuple[bytes, ...]) -> Key | None:
    if type(key) is bytes:
        name = key.decode()
        return name if 0 < len(name) <= limits.KEY_LENGTH_MAX else None
    path = tuple(map(bytes.decode, names))
    if not 0 < len(path) <= limits.KEY_DEPTH_MAX or not all(path) or sum(map(len, path)) > limits.KEY_LENGTH_MAX:
        return None
    return path[0] if len(path) == 1 else path


def _throttles(names: tuple[bytes, ...]) -> tuple[str, ...] | None:
    throttles = tuple(map(bytes.decode, names))
    if len(throttles) > limits.THROTTLES_MAX:
        return None
    for name in throttles:
        if not 0 < len(name) <= limits.THROTTLE_NAME_LENGTH_MAX:
            return None
    return throttles


def _weight(weight: Value) -> int | None:
    if type(weight) is int or (type(weight) is float and isfinite(weight)):
        return floor(min(max(weight, 1), limits.WEIGHT_MAX))
    return None


def _whole(number: Value, *, least: int, most: int) -> int | None:
    if type(number) is float:
        if not isfinite(number):
            return None
        number = floor(number)
    return number if type(number) is int and least <= number <= most else None


def _timespan_ms(number: Value) -> int | None:
    return _whole(number, least=0, most=limits.TIMESPAN_MS_MAX)


def _priority(priority: Value) -> int | None:
    if type(priority) is bytes:
        return _PRIORITIES.get(priority)
    return _whole(priority, least=0, most=len(PRIORITY_NAMES) - 1)
