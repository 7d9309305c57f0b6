"""A connection to PostgreSQL that waits for answers only for so long."""

from __future__ import annotations

import psycopg
import pytest

from fairlane.adapters.postgres.connection import connect
from fairlane.adapters.postgres.store import PostgresStore
from fairlane.adapters.shared.ownership import Ownership
from fairlane.errors import StoreFailed
from tests.kit.servers.stores import PostgresServer


def test_an_answer_that_takes_too_long_ends_the_connection(postgres: PostgresServer) -> None:
    """A statement that would take a minute fails after the time that was given, and nothing else is asked there."""
    connection = connect(postgres.url, session="test", patience_ms=10_000, is_synchronous=True, answer_ms=200)
    with pytest.raises(psycopg.OperationalError, match=r"no answer came within 0\.2 s"):
        connection.execute("SELECT pg_sleep(60)")
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")


def test_what_is_tidied_up_does_not_wait_again(postgres: PostgresServer) -> None:
    """A transaction and a pipeline that are left after such a failure raise it, and don't ask for another answer."""
    for block in ("transaction", "pipeline"):
        connection = connect(postgres.url, session="test", patience_ms=10_000, is_synchronous=True, answer_ms=200)
        with pytest.raises(psycopg.OperationalError), getattr(connection, block)():
            connection.execute("SELECT pg_sleep(60)").fetchall()


def test_an_answer_in_time_is_as_always(postgres: PostgresServer) -> None:
    """Statements, pipelines and transactions work under the limit, and errors of the server are its own."""
    with connect(postgres.url, session="test", patience_ms=10_000, is_synchronous=True, answer_ms=20_000) as connection:
        with connection.transaction():
            assert connection.execute("SELECT 41 + 1").fetchall() == [(42,)]
        with connection.pipeline():
            assert connection.execute("SELECT 2").fetchall() == [(2,)]
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        assert connection.execute("SELECT 3").fetchall() == [(3,)]


def test_a_store_that_gets_no_answer_has_failed(postgres: PostgresServer) -> None:
    """A sign of life that a lock holds up fails in time, and the store can be recovered afterwards."""
    ownership = Ownership(owner="me", heartbeat_timeout_ms=60_000, sends_heartbeats=False)
    store = PostgresStore(postgres.url, namespace="unanswered", ownership=ownership, answer_ms=300)
    store.recover()
    with psycopg.connect(postgres.url) as other:
        other.execute("SELECT * FROM fairlane_logs WHERE namespace = 'unanswered' FOR UPDATE")
        with pytest.raises(StoreFailed, match="no answer came"):
            store.renew()
    store.recover()
    store.renew()
    store.close()
