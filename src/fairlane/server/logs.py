"""Structured logs: a line an event, as text for people or JSON for machines. Neither payloads nor keys are in them."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

from fairlane.errors import FairlaneError, InternalError, RateLimited

_FIELDS: Final = ("code", "correlation_id", "caller", "group", "node")


class JsonLines(logging.Formatter):
    """A line of JSON an event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return an event as a line."""
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
    """A line of text an event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return an event as a line."""
        told = "".join(f" {name}={getattr(record, name)}" for name in _FIELDS if hasattr(record, name))
        trace = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return f"{_instant(record)} {record.levelname.lower():7} {record.name}: {record.getMessage()}{told}{trace}"


def _instant(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def level_of(error: FairlaneError) -> int:
    """Return how loudly a refusal is told: a fault of ours as such, and who asks too often does not fill the log."""
    if isinstance(error, InternalError):
        return logging.ERROR
    return logging.DEBUG if isinstance(error, RateLimited) else logging.INFO


def set_up_logs(log_format: str, level: str) -> None:
    """Let everything that is logged go to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for chatty in ("uvicorn", "websockets"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLogger().level))
