"""Structured logs: one line per event, as text or JSON. They contain neither payloads nor API keys."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

from fairlane.errors import FairlaneError, InternalError, RateLimited

_FIELDS: Final = ("code", "correlation_id", "caller", "address", "group", "node")
_EVENT_LENGTH_MAX: Final = 2_000
_FIELD_LENGTH_MAX: Final = 200
_TRACE_LENGTH_MAX: Final = 20_000
_TRACE_INDENT: Final = "\n  | "
"""Marks the lines of a traceback, so that none of them looks like an event of its own."""


class JsonLines(logging.Formatter):
    """Formats each event as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        event: dict[str, object] = {
            "at": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _cut(record.getMessage().rstrip(), _EVENT_LENGTH_MAX),
        }
        event |= {
            name: _cut(str(getattr(record, name)), _FIELD_LENGTH_MAX) for name in _FIELDS if hasattr(record, name)
        }
        if record.exc_info:
            event["trace"] = _cut(self.formatException(record.exc_info), _TRACE_LENGTH_MAX)
        return msgspec.json.encode(event).decode()


class TextLines(logging.Formatter):
    """Formats each event as a line of text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        fields = "".join(
            f" {name}={escaped(_cut(str(getattr(record, name)), _FIELD_LENGTH_MAX))}"
            for name in _FIELDS
            if hasattr(record, name)
        )
        event = escaped(_cut(record.getMessage().rstrip(), _EVENT_LENGTH_MAX))
        trace = self._trace(record)
        return f"{_instant(record)} {record.levelname.lower():7} {record.name}: {event}{fields}{trace}"

    def _trace(self, record: logging.LogRecord) -> str:
        if not record.exc_info:
            return ""
        lines = _cut(self.formatException(record.exc_info), _TRACE_LENGTH_MAX).splitlines()
        return _TRACE_INDENT + _TRACE_INDENT.join(map(escaped, lines))


def escaped(text: str) -> str:
    """Return a text in which no character can begin a line, move the cursor or hide another character."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def _cut(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[:length_max]}... ({len(text)} characters)"


def _instant(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def level_of(error: FairlaneError) -> int:
    """Return the log level of an error: our own bugs are errors, and rate-limited callers cannot fill the log."""
    if isinstance(error, InternalError):
        return logging.ERROR
    return logging.DEBUG if isinstance(error, RateLimited) else logging.INFO


def set_up_logs(log_format: str, level: str) -> None:
    """Send all logs to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for chatty in ("uvicorn", "websockets"):  # below errors they only say what clients did wrong, who can fill a disk
        logging.getLogger(chatty).setLevel(logging.ERROR)
