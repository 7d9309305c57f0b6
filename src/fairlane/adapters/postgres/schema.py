"""The tables in PostgreSQL, and their migrations: numbered steps, each taken once.

``fairlane_logs`` has a row per namespace: the owner and epoch of its log, and its extent.
``fairlane_pages`` and ``fairlane_bodies`` hold pages by their first sequence, and bodies by their number.
``fairlane_board`` holds the entries of boards, through which the nodes of a cluster coordinate.
"""

from __future__ import annotations

import contextlib
from typing import LiteralString

import psycopg
from psycopg import errors

from fairlane.adapters.postgres.connection import Connection, failure
from fairlane.errors import StoreCorrupt

_VERSION_TABLE: LiteralString = """
CREATE TABLE IF NOT EXISTS fairlane_schema (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  version INTEGER NOT NULL
)"""

_TABLES: tuple[LiteralString, ...] = (
    """
    CREATE TABLE fairlane_logs (
      namespace TEXT PRIMARY KEY,
      epoch BIGINT NOT NULL,
      owner TEXT,
      session TEXT,
      owned_until TIMESTAMP WITH TIME ZONE NOT NULL,
      first_sequence BIGINT NOT NULL,
      base BIGINT NOT NULL,
      next_sequence BIGINT NOT NULL
    )""",
    """
    CREATE TABLE fairlane_pages (
      namespace TEXT NOT NULL,
      sequence BIGINT NOT NULL,
      next_sequence BIGINT NOT NULL,
      page BYTEA NOT NULL,
      PRIMARY KEY (namespace, sequence)
    )""",
    """
    CREATE TABLE fairlane_bodies (
      namespace TEXT NOT NULL,
      number BIGINT NOT NULL,
      body BYTEA NOT NULL,
      PRIMARY KEY (namespace, number)
    )""",
)

_BOARD: tuple[LiteralString, ...] = (
    """
    CREATE TABLE fairlane_board (
      namespace TEXT NOT NULL,
      name TEXT NOT NULL,
      value BYTEA NOT NULL,
      version TEXT NOT NULL,
      PRIMARY KEY (namespace, name)
    )""",
)

_STEPS: tuple[tuple[LiteralString, ...], ...] = (_TABLES, _BOARD)
"""The statements that lead from each version to the next."""

_OPTIMISATIONS: tuple[LiteralString, ...] = (
    # Payloads are written once and read once, so compressing them costs more than it saves.
    "ALTER TABLE fairlane_bodies ALTER COLUMN body SET STORAGE EXTERNAL",
    "ALTER TABLE fairlane_pages ALTER COLUMN page SET STORAGE EXTERNAL",
    # The row of a log changes with every commit, and that of a node with every heartbeat. Free space in the page allows
    # heap-only updates, in place.
    "ALTER TABLE fairlane_logs SET (fillfactor = 50)",
    "ALTER TABLE fairlane_board SET (fillfactor = 50)",
)
"""Statements that make PostgreSQL faster; compatible engines may not know them."""

VERSION = len(_STEPS)


def migrate(connection: Connection) -> None:
    """Migrate the tables to the version of this code. Tables of that version need no right to change them.

    Raises StoreCorrupt if they have a later version. Raises StoreFailed if they cannot be changed.
    """
    try:
        if _version(connection) < VERSION:
            _create_version_table(connection)
            if _take_steps(connection):
                _optimise(connection)
    except psycopg.Error as error:
        raise failure(error, "prepare the tables") from error


def _version(connection: Connection) -> int:
    try:
        row = connection.execute("SELECT version FROM fairlane_schema WHERE one = 1").fetchone()
    except errors.UndefinedTable:
        return 0
    return _known(row)


def _known(row: tuple[object, ...] | None) -> int:
    version = 0 if row is None else int(str(row[0]))
    if version > VERSION:
        raise StoreCorrupt(f"The tables have version {version}; this version of Fairlane supports {VERSION}.")
    return version


def _create_version_table(connection: Connection) -> None:
    # Two sessions that create the same table at the same time can collide, in spite of IF NOT EXISTS.
    with contextlib.suppress(errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject):
        connection.execute(_VERSION_TABLE)
    connection.execute("INSERT INTO fairlane_schema (one, version) VALUES (1, 0) ON CONFLICT (one) DO NOTHING")


def _take_steps(connection: Connection) -> bool:
    """Take the missing steps under a row lock, so that others wait. Return whether there were any."""
    with connection.transaction():
        row = connection.execute("SELECT version FROM fairlane_schema WHERE one = 1 FOR UPDATE").fetchone()
        version = _known(row)
        for step in _STEPS[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute("UPDATE fairlane_schema SET version = %s WHERE one = 1", (VERSION,))
    return version < VERSION


def _optimise(connection: Connection) -> None:
    for statement in _OPTIMISATIONS:
        with contextlib.suppress(psycopg.Error):
            connection.execute(statement)
