"""The model's error: how far modelled consumers are from the journal they were made from.

Under the original settings the model should find the waits that the journal has. Where it does not, what it says of
other settings is worth less: ``whatif`` warns, and nothing is proposed, above ``ERROR_MAX``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from fairlane.errors import ModelInaccurate
from fairlane.spark.whatif.measures import ALL_KEYS, KeyCheck

ERROR_MAX: Final = 0.2
"""The error above which nothing is proposed."""
MESSAGES_MIN: Final = 50
"""Keys with fewer messages are not judged by themselves: their p99 is the wait of one message."""
SAME_MS: Final = 10
"""A difference up to this is none."""


class ModelError(msgspec.Struct, frozen=True, kw_only=True):
    """The error of a queue's model: how far p99 waits are from those in the journal, in parts of those.

    Attributes:
        error: the greater of the next two.
        all_keys: the error of all keys together.
        mean: the mean of the keys' errors, by messages.
        worst_key: the key with the greatest error; None if no key has enough messages.
        worst: its error.
        journal_p99_ms: the p99 wait of all keys in the journal.
        model_p99_ms: the same in the model.
    """

    queue: str
    error: float
    all_keys: float
    mean: float
    worst_key: str | None
    worst: float
    journal_p99_ms: int
    model_p99_ms: int


def model_errors(checks: Iterable[KeyCheck], queues: Sequence[str]) -> list[ModelError]:
    """Return the error of each queue's model."""
    found: dict[str, dict[str, KeyCheck]] = {queue: {} for queue in queues}
    for check in checks:
        if check.queue in found:
            found[check.queue][check.key] = check
    return [_error(queue, keys) for queue, keys in found.items()]


def _error(queue: str, keys: dict[str, KeyCheck]) -> ModelError:
    whole = keys[ALL_KEYS]
    known = [(error_of(check), check) for key, check in keys.items() if key and check.leased >= MESSAGES_MIN]
    messages = sum(check.leased for _, check in known)
    mean = sum(error * check.leased for error, check in known) / messages if messages else 0.0
    worst, at = max(((error, check.key) for error, check in known), default=(0.0, None))
    return ModelError(
        queue=queue,
        error=max(error_of(whole), mean),
        all_keys=error_of(whole),
        mean=mean,
        worst_key=at,
        worst=worst,
        journal_p99_ms=whole.journal_p99_ms,
        model_p99_ms=whole.model_p99_ms,
    )


def error_of(check: KeyCheck) -> float:
    """Return how far the model is from the journal, in parts of what the journal has."""
    apart = abs(check.model_p99_ms - check.journal_p99_ms)
    return apart / max(check.journal_p99_ms, SAME_MS) if apart > SAME_MS else 0.0


def require_accuracy(errors: Iterable[ModelError], checks: Iterable[KeyCheck], keys: Iterable[str]) -> None:
    """Raise ModelInaccurate if a queue's model, or that of one of some keys, is too far from the journal."""
    for one in errors:
        if one.error > ERROR_MAX:
            raise ModelInaccurate(_cause(f"queue {one.queue!r}", one.error, one.journal_p99_ms, one.model_p99_ms))
    wanted = {key for key in keys if key != ALL_KEYS}
    for check in checks:
        if check.key in wanted and check.leased >= MESSAGES_MIN and (error := error_of(check)) > ERROR_MAX:
            subject = f"key {check.key!r} of queue {check.queue!r}"
            raise ModelInaccurate(_cause(subject, error, check.journal_p99_ms, check.model_p99_ms))


def _cause(subject: str, error: float, journal_ms: int, model_ms: int) -> str:
    return (
        f"The model of {subject} is {error:.0%} off, more than {ERROR_MAX:.0%}: "
        f"its p99 wait is {journal_ms} ms in the journal and {model_ms} ms in the model."
    )
