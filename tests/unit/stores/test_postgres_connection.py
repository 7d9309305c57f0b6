"""A connection to PostgreSQL with a limit on the time of an answer."""

from __future__ import annotations

import psycopg
import pytest

from fairlane.adapters.postgres.connection import clear_text_warning, connect
from fairlane.adapters.postgres.store import PostgresStore
from fairlane.adapters.shared.ownership import Ownership
from fairlane.errors import StoreFailed
from tests.kit.servers.stores import PostgresServer


def test_an_answer_that_takes_too_long_ends_the_connection(postgres: PostgresServer) -> None:
    """A statement that would take a minute fails after the given time, and the connection is not used again."""
    connection = connect(postgres.url, session="t", network_timeout_ms=10_000, is_synchronous=True, answer_ms=200)
    with pytest.raises(psycopg.OperationalError, match=r"no answer came within 0\.2 s"):
        connection.execute("SELECT pg_sleep(60)")
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")


def test_the_cleanup_does_not_wait_again(postgres: PostgresServer) -> None:
    """Leaving a transaction or a pipeline after such a failure raises it, without waiting for another answer."""
    for block in ("transaction", "pipeline"):
        connection = connect(postgres.url, session="t", network_timeout_ms=10_000, is_synchronous=True, answer_ms=200)
        with pytest.raises(psycopg.OperationalError), getattr(connection, block)():
            connection.execute("SELECT pg_sleep(60)").fetchall()


def test_answers_in_time_are_unaffected(postgres: PostgresServer) -> None:
    """Statements, pipelines and transactions work under the limit, and server errors pass through unchanged."""
    with connect(
        postgres.url, session="t", network_timeout_ms=10_000, is_synchronous=True, answer_ms=20_000
    ) as connection:
        with connection.transaction():
            assert connection.execute("SELECT 41 + 1").fetchall() == [(42,)]
        with connection.pipeline():
            assert connection.execute("SELECT 2").fetchall() == [(2,)]
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        assert connection.execute("SELECT 3").fetchall() == [(3,)]


def test_a_store_that_gets_no_answer_has_failed(postgres: PostgresServer) -> None:
    """A heartbeat that a lock delays fails in time, and the store can be recovered afterwards."""
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


@pytest.mark.parametrize(
    ("host", "sslmode", "warns"),
    [
        ("db.example", "prefer", True),
        ("db.example", "", True),
        ("db.example", "allow", True),
        ("10.0.0.7", "disable", True),
        ("db.example", "require", False),
        ("db.example", "verify-full", False),
        ("localhost", "prefer", False),
        ("127.0.0.1", "prefer", False),
        ("::1", "prefer", False),
        ("/var/run/postgresql", "prefer", False),
    ],
)
def test_a_network_without_encryption_is_warned_about(host: str, sslmode: str, warns: bool) -> None:
    """libpq falls back to clear text by default, which matters as soon as the server is on another machine."""
    warning = clear_text_warning(host, sslmode)
    assert (warning is not None) == warns
    assert warning is None or host in warning
