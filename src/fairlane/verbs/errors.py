"""Errors inside answers: a refusal as data, with the same fields on every interface."""

from __future__ import annotations

import msgspec

from fairlane import errors
from fairlane.errors import FairlaneError, UnavailableError
from fairlane.model.partitions import Split


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as every interface returns it.

    Attributes:
        code: a stable name for programs.
        cause: what happened, for people.
        remedy: what to do about it, for people.
        retry_after_ms: when a retry is likely to help, where that is known.
        at: the address of the node to ask instead.
        split: how the queue is split, if its partitions are to be asked instead.
    """

    code: str
    cause: str
    remedy: str
    retry_after_ms: int | None = None
    at: str | None = None
    split: Split | None = None


def body_of(error: FairlaneError) -> ErrorBody:
    """Return an error as data."""
    retry_after_ms = error.retry_after_ms if isinstance(error, UnavailableError) else None
    at = error.at if isinstance(error, errors.QueueElsewhere) else None
    body = ErrorBody(code=error.code, cause=error.cause, remedy=error.remedy, retry_after_ms=retry_after_ms, at=at)
    return msgspec.structs.replace(body, split=_split_of(error)) if isinstance(error, errors.QueueSplit) else body


def _split_of(error: errors.QueueSplit) -> Split:
    return Split(partitions=error.partitions, made=error.made, by_message=error.by_message)


def _leaves() -> dict[str, type[FairlaneError]]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FairlaneError)]
    return {kind.code: kind for kind in kinds if "code" in vars(kind)}


_LEAVES = _leaves()


def error_of(body: ErrorBody) -> FairlaneError:
    """Return the error that a body describes. An unknown code becomes an internal error with the same text."""
    kind = _LEAVES.get(body.code)
    if kind is None:
        return errors.InternalError(f"{body.code}: {body.cause} {body.remedy}")
    if issubclass(kind, UnavailableError):
        return kind(body.cause, retry_after_ms=body.retry_after_ms)
    if issubclass(kind, errors.QueueElsewhere):
        return kind(body.cause, at=body.at or "")
    if issubclass(kind, errors.QueueSplit):
        split = body.split or Split(partitions=1, made=1)
        return kind(body.cause, partitions=split.partitions, made=split.made, by_message=split.by_message)
    return kind(body.cause)
