"""Behaviour of the PostgreSQL board beyond the contract."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fairlane.adapters.postgres.board import PostgresBoard
from fairlane.adapters.postgres.schema import VERSION
from fairlane.adapters.postgres.store import PostgresStore
from fairlane.errors import InvalidArgument, StoreFailed
from fairlane.ports.board import Entry
from fairlane.testing.store_contract import commit_of
from tests.kit.servers.stores import PostgresServer
from tests.kit.waiting import PATIENCE_S, wait_until

_numbers = itertools.count(1)


@contextmanager
def database(server: PostgresServer) -> Iterator[str]:
    """Provide an empty database."""
    name = f"boards{next(_numbers)}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield make_conninfo(server.url, dbname=name)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def boards(url: str, count: int = 1) -> Iterator[list[PostgresBoard]]:
    """Provide the boards of several nodes of one cluster."""
    chance = random.Random(1)
    made = [PostgresBoard(url, namespace="x", network_timeout_ms=10_000, chance=chance) for _ in range(count)]
    try:
        yield made
    finally:
        for board in made:
            board.close()


def heard(board: PostgresBoard, name: str) -> threading.Thread:
    """Return a thread that ends once a board has an entry; it reads the board only when it is woken."""

    def has() -> bool:
        try:
            return name in board.read()
        except StoreFailed:
            return False

    def look() -> None:
        while not has():
            board.wait(600)

    thread = threading.Thread(target=look)
    thread.start()
    return thread


def test_a_board_comes_back_after_its_sessions_have_ended(postgres: PostgresServer) -> None:
    """When the server ends the sessions, calls fail until they reconnect, and waiting threads are woken again."""
    with database(postgres) as url, boards(url, 2) as (board, other):
        entry = board.put("x", b"1", version=None)
        waiting = heard(other, "late")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE %s",
                ("fairlane board%",),
            )
        with pytest.raises(StoreFailed, match="could not read the board"):
            board.read()
        assert board.read() == {"x": entry}
        assert board.put("late", b"1", version=None) is not None
        waiting.join(PATIENCE_S)
        assert not waiting.is_alive()


def test_without_notifications_changes_are_still_seen(postgres: PostgresServer) -> None:
    """In engines without NOTIFY, changes work as usual, and a waiting thread polls."""
    with database(postgres) as url, boards(url) as (maker,):
        maker.read()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC")
            connection.execute("DROP ROLE IF EXISTS mute")
            connection.execute("CREATE ROLE mute LOGIN")
            connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON fairlane_schema, fairlane_board TO mute")
        with boards(make_conninfo(url, user="mute"), 2) as (board, other):
            waiting = heard(board, "late")
            assert other.put("late", b"1", version=None) is not None
            waiting.join(PATIENCE_S)
            assert not waiting.is_alive()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP OWNED BY mute")
            connection.execute("DROP ROLE mute")


def test_a_database_from_before_there_were_boards_gets_one(postgres: PostgresServer) -> None:
    """Tables of the first version are migrated once, by the first process to come, and their stores stay unchanged."""
    with database(postgres) as url:
        store = PostgresStore(url, namespace="old")
        store.recover()
        store.write(commit_of(1, 1, bodies=[(1, b"one")]))
        store.close()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP TABLE fairlane_board")
            connection.execute("UPDATE fairlane_schema SET version = 1")
        with boards(url) as (board,):
            entry = board.put("x", b"1", version=None)
            assert isinstance(entry, Entry)
            assert board.read() == {"x": entry}
        again = PostgresStore(url, namespace="old")
        assert again.recover().next_sequence == 2
        assert again.bodies([1]) == [b"one"]
        again.close()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT version FROM fairlane_schema").fetchone() == (VERSION,)


def test_clusters_in_one_database_are_separate(postgres: PostgresServer) -> None:
    """Two namespaces have two boards."""
    with database(postgres) as url, boards(url) as (board,):
        assert board.put("x", b"1", version=None) is not None
        other = PostgresBoard(url, namespace="y", network_timeout_ms=10_000)
        assert other.read() == {}
        other.close()


def test_a_namespace_leaves_space_for_its_groups() -> None:
    """A namespace too long for the stores of groups with the longest names is refused at once."""
    with pytest.raises(InvalidArgument, match="1 to 64"):
        PostgresBoard("", namespace="n" * 65, network_timeout_ms=10_000)


def test_an_unreachable_server_fails_reads_and_not_waits() -> None:
    """A read of an unreachable database fails without showing any secret; a wait waits, and does not spin."""
    with boards("postgresql://fairlane:hidden@/postgres?host=/nowhere/at/all") as (board,):
        for _ in range(2):
            with pytest.raises(StoreFailed, match="could not be reached") as caught:
                board.read()
            assert "hidden" not in str(caught.value)
        board.wait(0.01)
        board.wait(600)


def sees(board: PostgresBoard, process: str) -> bool:
    """Return whether a board has seen the session of a process."""
    return board._sessions._number(process) in board._sessions._attendance._seen


def attending(made: list[PostgresBoard], *, lost: list[str]) -> None:
    """Let boards attend as ``p0``, ``p1`` and so on, each under another name when it has lost its session."""

    def attend(board: PostgresBoard, process: str) -> None:
        def on_lost() -> None:
            lost.append(process)
            attend(board, f"{process}+")

        board.attend(process, on_lost)

    names = [f"p{number}" for number in range(len(made))]
    for board, name in zip(made, names, strict=True):
        attend(board, name)
    wait_until(lambda: all(sees(board, name) for board in made for name in names), what="All see each other")


def test_a_process_whose_connection_is_gone_has_ended(postgres: PostgresServer) -> None:
    """The others learn which one it was, and are woken for it."""
    with database(postgres) as url, boards(url, 3) as made:
        attending(made, lost=[])
        made[0].read()
        made[2].close()
        made[0].wait(600)
        wait_until(lambda: bool(made[0].ended(["p0", "p1", "p2", "p3"])), what="The end is seen")
        assert made[0].ended(["p0", "p1", "p2", "p3"]) == {"p2"}


def test_a_process_that_loses_its_session_goes_on_under_another_name(postgres: PostgresServer) -> None:
    """It learns of the loss and is in doubt until it has another name; others know the new one, and that the old is
    over.
    """
    lost: list[str] = []
    with database(postgres) as url, boards(url, 2) as made:
        attending(made, lost=lost)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(activity.pid) FROM pg_stat_activity activity JOIN pg_locks USING (pid)"
                " WHERE locktype = 'advisory' AND objid = %s",
                (made[1]._sessions._number("p1"),),
            )
        wait_until(lambda: bool(made[0].ended(["p1", "p1+"])), what="The end is seen")
        wait_until(lambda: sees(made[0], "p1+"), what="The new name is seen")
        wait_until(made[1].is_attending, what="It is certain again")
        assert lost == ["p1"]
        assert made[0].ended(["p0", "p1", "p1+"]) == {"p1"}


def test_an_engine_that_shows_no_locks_leaves_nobody_in_doubt(postgres: PostgresServer) -> None:
    """Where nobody can see sessions, none is missed, notifications still arrive, and processes rely on themselves."""
    with database(postgres) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA blind")
            connection.execute("CREATE VIEW blind.pg_locks AS SELECT * FROM pg_catalog.pg_locks WHERE false")
        blind = make_conninfo(url, options="-c search_path=blind,pg_catalog,public")
        with boards(blind, 2) as made:
            for number, board in enumerate(made):
                board.read()
                board.attend(f"p{number}", lambda: None)
            wait_until(lambda: not any(board._sessions._is_supported for board in made), what="Both know that")
            thread = heard(made[0], "x")
            made[1].put("x", b"1", version=None)
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            assert all(board.is_attending() for board in made)
            assert made[0].ended(["p0", "p1"]) == frozenset()
