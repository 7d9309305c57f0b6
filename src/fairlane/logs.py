"""Logs of a server and of a worker: one line for each event, as text or JSON. They hold no payloads and no API keys.

What clients send ends up in events. So a line has a limited length, and nothing in it can begin another line, move the
cursor or hide a character.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

FIELDS: Final = (
    *("code", "correlation_id", "caller", "address", "group", "node"),
    *("queue", "message_id", "attempt", "verdict", "child"),
    *("interface", "verb", "status", "duration_ms"),
)
"""What an event may have besides its text."""
_EVENT_LENGTH_MAX: Final = 2_000
_FIELD_LENGTH_MAX: Final = 200
_TRACE_LENGTH_MAX: Final = 20_000
_TRACE_INDENT: Final = "\n  | "
"""Marks the lines of a traceback, so that none of them looks like an event of its own."""


class LineFormatter(logging.Formatter):
    """Formats an event as one line, with its fields."""

    def __init__(self, *, is_json: bool, shows_process: bool = False) -> None:
        super().__init__()
        self._is_json = is_json
        self._shows_process = shows_process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level, text = record.levelname.lower(), _cut(record.getMessage().rstrip(), _EVENT_LENGTH_MAX)
        facts = {name: _shown(getattr(record, name)) for name in FIELDS if hasattr(record, name)}
        trace = _cut(self.formatException(record.exc_info), _TRACE_LENGTH_MAX) if record.exc_info else None
        if self._is_json:
            process = {"pid": record.process} if self._shows_process else {}
            event = {"at": at, "level": level, "logger": record.name, **process, "event": text, **facts}
            return _json_line(event if trace is None else event | {"trace": trace})
        process_text = f"[{record.process}]" if self._shows_process else ""
        suffix = "".join(f" {name}={escaped(str(value))}" for name, value in facts.items())
        lines = "" if trace is None else _TRACE_INDENT + _TRACE_INDENT.join(map(escaped, trace.splitlines()))
        return f"{at} {level:7} {record.name}{process_text}: {escaped(text)}{suffix}{lines}"


def escaped(text: str) -> str:
    """Return a text in which no character can begin a line, move the cursor or hide another character."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def _json_line(event: dict[str, object]) -> str:
    line = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    if line.isprintable():
        return line
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in line)


def _shown(value: object) -> object:
    return value if isinstance(value, (int, float)) else _cut(str(value), _FIELD_LENGTH_MAX)


def _cut(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[:length_max]}... ({len(text)} characters)"


def set_up_logs(log_format: str, level: str, *, shows_process: bool = False) -> None:
    """Send all log events to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(is_json=log_format == "json", shows_process=shows_process))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for chatty in ("uvicorn", "websockets"):  # below errors they log only mistakes of clients, who could fill the disk
        logging.getLogger(chatty).setLevel(logging.ERROR)


def set_up_json_log(name: str) -> None:
    """Send the events of one logger to standard error as lines of JSON, whatever the format and level of the others."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(is_json=True))
    logger = logging.getLogger(name)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
