"""The board: current alarms, recently resolved ones, and what the webhook has not been told yet.

It is a file next to the manifest of the tables. The dashboard and ``fairlane alarms`` show it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from fairlane.alarms.alarm import Alarm
from fairlane.errors import StoreCorrupt
from fairlane.lakehouse import Lakehouse, TablesAddress, open_tables

FILE: Final = "alarms.json"
RESOLVED_MAX: Final = 50
"""How many resolved alarms are kept."""
UNTOLD_MAX: Final = 1_000
"""How many alarms of each kind of news are kept for a webhook that does not answer."""
VERSION: Final = 1


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm that is over, and since when."""

    alarm: Alarm
    resolved_ms: int


class News(msgspec.Struct, frozen=True, kw_only=True):
    """Alarms that are new, and alarms that are over."""

    raised: tuple[Alarm, ...] = ()
    resolved: tuple[Resolved, ...] = ()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.raised or self.resolved)

    def lines(self) -> list[str]:
        """Return them in words."""
        raised = [f"Alarm: {each.text}" for each in self.raised]
        return [*raised, *(f"Resolved: {each.alarm.text}" for each in self.resolved)]

    def then(self, later: News) -> News:
        """Return these and later ones. If there are too many, the oldest are left out."""
        return News(
            raised=(*self.raised, *later.raised)[-UNTOLD_MAX:],
            resolved=(*self.resolved, *later.resolved)[-UNTOLD_MAX:],
        )


class AlarmBoard(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known about alarms.

    Attributes:
        version: of this file.
        horizon_ms: the instant of the last event of the tables that were looked at.
        raised: the current alarms, the oldest first.
        resolved: those that were resolved recently, the latest first.
        untold: what the webhook has not been told yet.
    """

    version: int = VERSION
    horizon_ms: int = 0
    raised: tuple[Alarm, ...] = ()
    resolved: tuple[Resolved, ...] = ()
    untold: News = News()

    def after(self, found: Iterable[Alarm], *, horizon_ms: int) -> tuple[AlarmBoard, News]:
        """Return the board when these alarms are found, and what is new.

        An alarm that was there before keeps the instant at which it was raised.
        """
        since = {alarm.identity: alarm.since_ms for alarm in self.raised}
        now = {alarm.identity: alarm for alarm in found}
        raised = [
            msgspec.structs.replace(alarm, since_ms=since.get(which, alarm.since_ms)) for which, alarm in now.items()
        ]
        raised.sort(key=lambda alarm: (alarm.since_ms, alarm.identity))
        over = [Resolved(alarm=alarm, resolved_ms=horizon_ms) for alarm in self.raised if alarm.identity not in now]
        news = News(
            raised=tuple(alarm for alarm in raised if alarm.identity not in since),
            resolved=tuple(over),
        )
        board = AlarmBoard(
            horizon_ms=horizon_ms,
            raised=tuple(raised),
            resolved=(*over, *self.resolved)[:RESOLVED_MAX],
            untold=self.untold.then(news),
        )
        return board, news


def load_board(lakehouse: Lakehouse) -> tuple[AlarmBoard, str | None]:
    """Return the board of tables, an empty one if there is none yet, and its tag in the storage.

    Raises:
        StoreCorrupt: it cannot be decoded, or has another version.
    """
    found = lakehouse.storage.read(FILE)
    if found is None:
        return AlarmBoard(), None
    try:
        board = msgspec.json.decode(found.data, type=AlarmBoard)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(
            f"{FILE} at {lakehouse.address} is not valid: {error}. Delete it, and the next run writes it again."
        ) from error
    if board.version != VERSION:
        raise StoreCorrupt(
            f"{FILE} at {lakehouse.address} has version {board.version}; this release reads version {VERSION}."
        )
    return board, found.tag


def read_board(tables: str | Path | TablesAddress) -> AlarmBoard:
    """Return the alarms of tables.

    Raises:
        InvalidArgument: there are no tables.
        StoreCorrupt: the file of alarms cannot be read.
    """
    return load_board(open_tables(tables))[0]
