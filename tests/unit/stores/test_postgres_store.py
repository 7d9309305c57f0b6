"""Behaviour of the PostgreSQL store beyond the contract."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fairlane.adapters.postgres import schema
from fairlane.adapters.postgres.log import PostgresLog
from fairlane.adapters.postgres.store import PostgresStore
from fairlane.adapters.shared.ownership import Ownership
from fairlane.errors import InvalidArgument, StoreCorrupt, StoreFailed, StoreFenced
from fairlane.ports.store import Extent
from fairlane.testing.store_contract import commit_of, page_of
from tests.kit.servers.stores import PostgresServer
from tests.kit.waiting import PATIENCE_S, wait_until

_numbers = itertools.count(1)


@pytest.fixture
def namespace() -> str:
    return f"unit-{next(_numbers)}"


@contextmanager
def opened(url: str, namespace: str, **terms: object) -> Iterator[PostgresStore]:
    store = PostgresStore(url, namespace=namespace, ownership=Ownership(sends_heartbeats=False, **terms))  # type: ignore[arg-type] # by name
    store.recover()
    try:
        yield store
    finally:
        store.close()


@contextmanager
def new_database(server: PostgresServer) -> Iterator[str]:
    name = f"fresh{next(_numbers)}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield make_conninfo(server.url, dbname=name)
        connection.execute(f"DROP DATABASE {name}")


def end_sessions(server: PostgresServer) -> None:
    """End all sessions of Fairlane, as a server that goes down does."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE 'fairlane %'"
        )


def starts(store: PostgresStore) -> list[int]:
    return [page.sequence for page in store.pages(0)]


def test_namespaces_are_separate(postgres: PostgresServer, namespace: str) -> None:
    """Two stores of one database are open at the same time, and neither sees data of the other."""
    with opened(postgres.url, namespace) as one, opened(postgres.url, f"{namespace}-other") as other:
        one.write(commit_of(1, 1, bodies=[(1, b"one")]))
        one.sync()
        other.write(commit_of(1, 2, bodies=[(1, b"other")]))
        other.sync()
        assert (starts(one), one.bodies([1])) == ([1], [b"one"])
        assert [page.page for page in other.pages(0)] == [page_of(1, 3)]
        other.write(commit_of(3, 1, dropped=[1], base=4, trim=4))
        other.sync()
        assert (starts(one), one.bodies([1])) == ([1], [b"one"])


def test_several_writes_are_one_transaction(postgres: PostgresServer, namespace: str) -> None:
    """Commits written before a sync become visible to others all at once, with the sync."""
    with opened(postgres.url, namespace) as store, psycopg.connect(postgres.url, autocommit=True) as other:

        def seen() -> list[tuple[int, str]]:
            query = "SELECT sequence, CAST(xmin AS TEXT) FROM fairlane_pages WHERE namespace = %s"
            return [(int(sequence), str(made_by)) for sequence, made_by in other.execute(query, (namespace,))]

        store.write(commit_of(1, 1))
        store.write(commit_of(2, 1))
        assert seen() == []
        store.sync()
        assert [sequence for sequence, _ in seen()] == [1, 2]
        assert len({made_by for _, made_by in seen()}) == 1


def test_a_lost_connection_is_a_failure_and_recovery_repairs_it(postgres: PostgresServer, namespace: str) -> None:
    """After its session was ended the store refuses everything, then reopens with the synced commits."""
    with opened(postgres.url, namespace) as store:
        store.write(commit_of(1, 1))
        store.sync()
        store.write(commit_of(2, 1))
        end_sessions(postgres)
        for call in (store.sync, store.sync, store.check_owned, lambda: store.bodies([1])):
            with pytest.raises(StoreFailed):
                call()
        assert store.recover() == Extent(first=1, base=1, next_sequence=2)
        store.check_owned()
        store.write(commit_of(2, 1))
        store.sync()
        assert starts(store) == [1, 2]


def test_an_owner_that_lost_its_connection_learns_of_a_takeover(postgres: PostgresServer, namespace: str) -> None:
    """Recovery after a failure does not take the store back from another process."""
    with opened(postgres.url, namespace) as store:
        end_sessions(postgres)
        with opened(postgres.url, namespace, force=True) as other:
            with pytest.raises(StoreFailed):
                store.renew()
            with pytest.raises(StoreFenced, match="taken over"):
                store.recover()
            other.write(commit_of(1, 1))
            other.sync()


def test_an_opening_whose_answer_was_lost_still_owns_the_store(
    postgres: PostgresServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the answer to an opening is lost, first or later, the next attempt is not locked out by the one before."""
    store = PostgresStore(postgres.url, namespace=namespace, ownership=Ownership(sends_heartbeats=False))
    take = PostgresLog.take

    def take_and_lose(*arguments: Any, **terms: Any) -> None:
        take(*arguments, **terms)
        raise psycopg.OperationalError("the answer is lost")

    for sequence in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(PostgresLog, "take", take_and_lose)
            with pytest.raises(StoreFailed, match="lost"):
                store.recover()
        assert store.recover().next_sequence == sequence
        store.write(commit_of(sequence, 1))
        store.sync()
    store.close()


def test_a_process_stopped_in_the_middle_of_a_transaction_locks_no_one_out(
    postgres: PostgresServer, namespace: str
) -> None:
    """A takeover ends the session of an owner whose half-sent transaction locks the log."""
    with opened(postgres.url, namespace), psycopg.connect(postgres.url) as stopped:
        row = stopped.execute("SELECT session FROM fairlane_logs WHERE namespace = %s", (namespace,)).fetchone()
        assert row is not None
        stopped.execute("SELECT set_config('application_name', %s, false)", (row[0],))
        stopped.execute("UPDATE fairlane_logs SET base = 7 WHERE namespace = %s", (namespace,))
        with opened(postgres.url, namespace, force=True, heartbeat_timeout_ms=3_000) as other:
            other.write(commit_of(1, 1))
            other.sync()
        with pytest.raises(psycopg.OperationalError):
            stopped.execute("COMMIT")


def test_another_writer_is_detected(postgres: PostgresServer, namespace: str) -> None:
    """A log with an unexpected end is a failure, even under our own epoch, and nothing is committed."""
    with opened(postgres.url, namespace) as store:
        with psycopg.connect(postgres.url, autocommit=True) as other:
            other.execute("UPDATE fairlane_logs SET next_sequence = 5 WHERE namespace = %s", (namespace,))
        store.write(commit_of(1, 1, bodies=[(1, b"one")]))
        with pytest.raises(StoreFailed, match="does not end at 1"):
            store.sync()
        assert store.recover().next_sequence == 5
        assert store.bodies([1]) == [None]


def test_a_commit_that_lost_a_race_is_repeated(postgres: PostgresServer, namespace: str) -> None:
    """If the engine resolves conflicts by rolling one side back, the store repeats its transaction."""
    with new_database(postgres) as url:
        strict = make_conninfo(url, options="-c default_transaction_isolation=serializable")
        with opened(strict, namespace) as store, psycopg.connect(url) as other:
            store.write(commit_of(1, 1))
            other.execute("UPDATE fairlane_logs SET owner = 'touched' WHERE namespace = %s", (namespace,))
            committing = threading.Thread(target=store.sync)
            committing.start()
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            wait_until(lambda: other.execute(query).fetchone() == (1,), what="The commit waits")
            other.commit()
            committing.join(PATIENCE_S)
            assert starts(store) == [1]
            again = store.recover()
            assert again.next_sequence == 2


@pytest.mark.parametrize("_time", range(12))
def test_many_may_make_the_tables_at_the_same_time(postgres: PostgresServer, _time: int) -> None:
    """Processes that open stores in an empty database at the same time all succeed, however they collide."""
    with new_database(postgres) as url:
        stores = [
            PostgresStore(url, namespace=f"n{at}", ownership=Ownership(sends_heartbeats=False)) for at in range(8)
        ]
        ready = threading.Barrier(len(stores))
        outcomes: list[Extent | Exception] = []

        def open_together(store: PostgresStore) -> None:
            ready.wait()
            try:
                outcomes.append(store.recover())
            except Exception as error:  # noqa: BLE001 - the test shows it
                outcomes.append(error)

        threads = [threading.Thread(target=open_together, args=(store,)) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for store in stores:
            store.close()
        assert outcomes == [Extent(first=1, base=1, next_sequence=1)] * len(stores)


def test_a_later_version_of_the_tables_is_refused(postgres: PostgresServer, namespace: str) -> None:
    """Tables of a later version of Fairlane are left unchanged, with an error that names both versions."""
    with new_database(postgres) as url:
        with opened(url, namespace):
            pass
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE fairlane_schema SET version = 99")
        with pytest.raises(StoreCorrupt, match=f"version 99; this version of Fairlane supports {schema.VERSION}"):
            PostgresStore(url).recover()


def test_existing_tables_need_no_right_to_create_tables(postgres: PostgresServer, namespace: str) -> None:
    """A user that may only read and write rows can open a store once the tables exist."""
    with new_database(postgres) as url:
        with opened(url, namespace):
            pass
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE plain{namespace[5:]} LOGIN")
            tables = "fairlane_schema, fairlane_logs, fairlane_pages, fairlane_bodies"
            connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO plain{namespace[5:]}")
        with opened(make_conninfo(url, user=f"plain{namespace[5:]}"), namespace) as store:
            store.write(commit_of(1, 1, bodies=[(1, b"one")]))
            store.sync()
            assert store.bodies([1]) == [b"one"]


def test_durability_is_that_of_the_session(postgres: PostgresServer, namespace: str) -> None:
    """With fsync a commit waits for the disk of the server, with os it does not."""
    for durability, expected in (("fsync", "on"), ("os", "off")):
        store = PostgresStore(postgres.url, namespace=namespace, durability=durability)  # type: ignore[arg-type] # one of both
        store.recover()
        assert store._connection is not None
        row = store._connection.execute("SHOW synchronous_commit").fetchone()
        assert row == (expected,)
        store.close()


def test_an_unreachable_server_is_a_failure() -> None:
    """The error for an unreachable database says so, and shows no secret."""
    store = PostgresStore("postgresql://fairlane:hidden@/postgres?host=/nowhere/at/all")
    with pytest.raises(StoreFailed, match="could not be reached") as caught:
        store.recover()
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("options", [{"namespace": ""}, {"namespace": "a\nb"}, {"durability": "fsnyc"}])
def test_invalid_options_are_refused(options: dict[str, str]) -> None:
    """Invalid options are refused when the store is created, before it connects."""
    with pytest.raises(InvalidArgument):
        PostgresStore("postgresql:///x", **options)  # type: ignore[arg-type] # that is the mistake


def test_an_invalid_address_is_refused() -> None:
    """An address that libpq cannot parse is an invalid argument."""
    with pytest.raises(InvalidArgument, match="Invalid PostgreSQL connection string"):
        PostgresStore("postgresql:///x?nonsense=1").recover()


@pytest.mark.parametrize("password", ["p%zz", "100%", "%zz", 'quo"te%'])
def test_a_password_with_a_wrong_escape_is_not_shown(password: str) -> None:
    """libpq quotes what it cannot decode, which is the password; the error says what to do without it."""
    with pytest.raises(InvalidArgument, match="Invalid PostgreSQL connection string") as caught:
        PostgresStore(f"postgresql://fairlane:{password}@localhost/x").recover()
    assert password not in str(caught.value)
    assert "%25" in str(caught.value)
    assert caught.value.__cause__ is None
