"""The worker's log: one line for each event, as text or JSON, never with payloads."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

_FIELDS: Final = ("queue", "message_id", "correlation_id", "attempt", "verdict", "code", "child")


class LineFormatter(logging.Formatter):
    """Formats an event as one line, with the fields of its message."""

    def __init__(self, *, is_json: bool) -> None:
        super().__init__()
        self._is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        """Return an event as a line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts = {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        trace = self.formatException(record.exc_info) if record.exc_info else None
        if self._is_json:
            event = {"at": at, "level": record.levelname.lower(), "logger": record.name, "pid": record.process}
            event |= {"event": record.getMessage(), **facts} | ({} if trace is None else {"trace": trace})
            return msgspec.json.encode(event).decode()
        suffix = "".join(f" {name}={value}" for name, value in facts.items())
        line = f"{at} {record.levelname.lower():7} {record.name}[{record.process}]: {record.getMessage()}{suffix}"
        return line if trace is None else f"{line}\n{trace}"


def set_up_logs(log_format: str, level: str) -> None:
    """Send all log events to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(is_json=log_format == "json"))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
