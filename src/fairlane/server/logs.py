"""Structured logs: one line per event, as text or JSON. They contain neither payloads nor API keys."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

from fairlane.errors import FairlaneError, InternalError, RateLimited

_FIELDS: Final = ("code", "correlation_id", "caller", "group", "node")


class JsonLines(logging.Formatter):
    """Formats each event as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        event: dict[str, object] = {
            "at": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        event |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info:
            event["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(event).decode()


class TextLines(logging.Formatter):
    """Formats each event as a line of text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        fields = "".join(f" {name}={getattr(record, name)}" for name in _FIELDS if hasattr(record, name))
        trace = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return f"{_instant(record)} {record.levelname.lower():7} {record.name}: {record.getMessage()}{fields}{trace}"


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
    for chatty in ("uvicorn", "websockets"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLogger().level))
