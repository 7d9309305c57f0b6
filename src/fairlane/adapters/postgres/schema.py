"""The tables of a store in PostgreSQL, and how they come to be: numbered steps, each taken once.

``fairlane_logs`` has a row for each namespace: who owns its log under which epoch, and how far it reaches.
``fairlane_pages`` and ``fairlane_bodies`` hold pages by the sequence they begin with, and bodies by their number.
``fairlane_board`` holds what the nodes of a cluster tell each other.
"""

from __future__ import annotations

import contextlib
from typing import LiteralString

import psycopg
from psycopg import errors

from fairlane.adapters.postgres.connection import Connection, failure
from fairlane.errors import StoreCorrupt

_LEDGER: LiteralString = """
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
"""What leads from each version to the next."""

_COMFORTS: tuple[LiteralString, ...] = (
    # Payloads are written once and read once: to compress them costs more than it saves.
    "ALTER TABLE fairlane_bodies ALTER COLUMN body SET STORAGE EXTERNAL",
    "ALTER TABLE fairlane_pages ALTER COLUMN page SET STORAGE EXTERNAL",
    # The row of a log changes with every commit, and that of a node with every beat: in place while there is room.
    "ALTER TABLE fairlane_logs SET (fillfactor = 50)",
    "ALTER TABLE fairlane_board SET (fillfactor = 50)",
)
"""What makes PostgreSQL faster, and other engines of its kind may not know."""

VERSION = len(_STEPS)


def migrate(connection: Connection) -> None:
    """Bring the tables to the version that this code knows. Needs no right to change them if they are.

    Raises:
        StoreCorrupt: they have a later version.
        StoreFailed: they can't be changed.
    """
    try:
        if _version(connection) < VERSION:
            _make_ledger(connection)
            if _take_steps(connection):
                _add_comforts(connection)
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
        raise StoreCorrupt(f"The tables have version {version}; this version of Fairlane knows {VERSION}.")
    return version


def _make_ledger(connection: Connection) -> None:
    # Two who make the same table at the same time get in each other's way, in spite of IF NOT EXISTS.
    with contextlib.suppress(errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject):
        connection.execute(_LEDGER)
    connection.execute("INSERT INTO fairlane_schema (one, version) VALUES (1, 0) ON CONFLICT (one) DO NOTHING")


def _take_steps(connection: Connection) -> bool:
    """Take the steps that are missing, while everybody else who wants to waits; return whether there were any."""
    with connection.transaction():
        row = connection.execute("SELECT version FROM fairlane_schema WHERE one = 1 FOR UPDATE").fetchone()
        version = _known(row)
        for step in _STEPS[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute("UPDATE fairlane_schema SET version = %s WHERE one = 1", (VERSION,))
    return version < VERSION


def _add_comforts(connection: Connection) -> None:
    for statement in _COMFORTS:
        with contextlib.suppress(psycopg.Error):
            connection.execute(statement)
