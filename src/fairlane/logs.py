"""Logs of a server and of a worker: one line for each event, as text or JSON. They hold no payloads and no API keys."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

FIELDS: Final = (
    *("code", "correlation_id", "caller", "group", "node"),
    *("queue", "message_id", "attempt", "verdict", "child"),
)
"""What an event may have besides its text."""


class LineFormatter(logging.Formatter):
    """Formats an event as one line, with its fields."""

    def __init__(self, *, is_json: bool, shows_process: bool = False) -> None:
        super().__init__()
        self._is_json = is_json
        self._shows_process = shows_process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level, text = record.levelname.lower(), record.getMessage()
        facts = {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        trace = self.formatException(record.exc_info) if record.exc_info else None
        if self._is_json:
            process = {"pid": record.process} if self._shows_process else {}
            event = {"at": at, "level": level, "logger": record.name, **process, "event": text, **facts}
            return msgspec.json.encode(event if trace is None else event | {"trace": trace}).decode()
        process_text = f"[{record.process}]" if self._shows_process else ""
        suffix = "".join(f" {name}={value}" for name, value in facts.items())
        line = f"{at} {level:7} {record.name}{process_text}: {text}{suffix}"
        return line if trace is None else f"{line}\n{trace}"


def set_up_logs(log_format: str, level: str, *, shows_process: bool = False) -> None:
    """Send all log events to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(is_json=log_format == "json", shows_process=shows_process))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for chatty in ("uvicorn", "websockets"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLogger().level))
