"""Looks at the tables after each run, updates the board, and tells the webhook what is new.

What the webhook has to be told is written down before it is told, and crossed out afterwards. So a killed process or a
webhook that does not answer delays what is new and may repeat it, but never loses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from fairlane.alarms.alarm import Alarm
from fairlane.alarms.board import FILE, AlarmBoard, News, load_board
from fairlane.alarms.readings import Horizon, Readings
from fairlane.alarms.rules import above_entitlement, new_errors, slower
from fairlane.alarms.webhook import Webhook
from fairlane.errors import Disconnected, StoreLocked
from fairlane.lakehouse import Lakehouse, TablesAddress, parse_address


class AlarmWatch:
    """Watches tables."""

    def __init__(
        self,
        tables: str | Path | TablesAddress,
        *,
        webhook: Webhook | None = None,
        tell: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """Watch tables at an address. ``tell`` is called with a line for each alarm that is new or over."""
        self._tables, self._webhook, self._tell = tables, webhook, tell
        self.is_behind = webhook is not None
        """Whether to look again, though the tables have not changed: a look failed, or the webhook lacks some news."""

    def look(self) -> AlarmBoard:
        """Look at the tables as they are now, and return all alarms. Before the first run there are none.

        Raises:
            StoreCorrupt: the file of alarms cannot be read.
            StoreLocked: another process has written it in the meantime.
            StoreFailed: the tables cannot be read, or the file cannot be written.
        """
        self.is_behind = True  # until the look has succeeded
        board = self._look()
        self.is_behind = bool(board.untold)
        return board

    def _look(self) -> AlarmBoard:
        lakehouse = Lakehouse(parse_address(self._tables))
        horizon = lakehouse.load(Horizon)
        if horizon is None:
            return AlarmBoard()
        before, tag = load_board(lakehouse)
        now_ms = horizon.horizon_ms
        board, news = before.after(found_in(lakehouse, now_ms), horizon_ms=now_ms)
        for line in news.lines():
            self._tell(line)
        if self._webhook is None:
            board = msgspec.structs.replace(board, untold=News())
        tag = _write(lakehouse, board, tag)
        if self._webhook is not None and board.untold:
            try:
                self._webhook.tell(board.untold)
            except Disconnected as error:
                self._tell(f"{error.cause} The alarms will be sent again.")
            else:
                board = msgspec.structs.replace(board, untold=News())
                _write(lakehouse, board, tag)
        return board


def found_in(lakehouse: Lakehouse, horizon_ms: int) -> Iterable[Alarm]:
    """Yield the alarms that tables give rise to."""
    tables = Readings(lakehouse, horizon_ms)
    yield from above_entitlement(tables.services(), now_ms=horizon_ms)
    yield from slower(tables.hours(), now_ms=horizon_ms)
    yield from new_errors(tables.errors(), now_ms=horizon_ms)


def _write(lakehouse: Lakehouse, board: AlarmBoard, tag: str | None) -> str:
    data = msgspec.json.format(msgspec.json.encode(board), indent=1)
    written = lakehouse.storage.replace(FILE, data, tag=tag)
    if written is None:
        raise StoreLocked(f"Another process has updated {FILE} at {lakehouse.address} in the meantime.")
    return written
