"""Writing to the outbox, with each driver that applications use."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from psycopg2.extras import RealDictCursor
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from fairlane.errors import InvalidArgument
from fairlane.outbox import enqueue, enqueue_async
from fairlane.tasks import App


def rows(url: str) -> list[tuple[object, ...]]:
    """Return what is committed in the outbox."""
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT queue, payload, terms FROM fairlane_outbox.messages ORDER BY id").fetchall()


def with_psycopg(url: str, *, commits: bool) -> None:
    """Write two messages with psycopg, the second over a cursor."""
    with psycopg.connect(url) as connection:
        enqueue(connection, "mail", b"one", fairness_key=("acme", "eu"))
        enqueue(connection.cursor(), "mail", b"two", headers={"a": "b"}, priority="high")
        if not commits:
            connection.rollback()


def with_dictionaries(url: str, *, commits: bool) -> None:
    """Write two messages with psycopg, whose rows are dictionaries."""
    with psycopg.connect(url, row_factory=dict_row) as connection:
        enqueue(connection, "mail", b"one", fairness_key=("acme", "eu"))
        enqueue(connection.cursor(), "mail", b"two", headers={"a": "b"}, priority="high")
        if not commits:
            connection.rollback()


def with_psycopg2(url: str, *, commits: bool) -> None:
    """Write two messages with psycopg2, the second over a cursor whose rows are dictionaries."""
    connection = psycopg2.connect(url)
    enqueue(connection, "mail", b"one", fairness_key=("acme", "eu"))
    enqueue(connection.cursor(cursor_factory=RealDictCursor), "mail", b"two", headers={"a": "b"}, priority="high")
    if commits:
        connection.commit()
    connection.close()


_DJANGO = """
import json, sys
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **json.loads(sys.argv[1])}})
from django.db import connection, transaction
from fairlane.outbox import enqueue
with transaction.atomic(), connection.cursor() as cursor:
    enqueue(connection, "mail", b"one", fairness_key=("acme", "eu"))
    enqueue(cursor, "mail", b"two", headers={"a": "b"}, priority="high")
    transaction.set_rollback(sys.argv[2] == "rollback")
"""


def with_django(url: str, *, commits: bool) -> None:
    """Write two messages with Django, the second over a cursor."""
    parts = urlsplit(url)
    terms = {"USER": parts.username, "NAME": parts.path[1:], "HOST": parse_qs(parts.query)["host"][0]}
    ending = "commit" if commits else "rollback"
    subprocess.run([sys.executable, "-c", _DJANGO, json.dumps(terms), ending], check=True)


def with_sqlalchemy(url: str, *, commits: bool) -> None:
    """Write two messages with SQLAlchemy, over a connection and over a session."""
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))
    with engine.connect() as connection, Session(connection) as session:
        enqueue(connection, "mail", b"one", fairness_key=("acme", "eu"))
        enqueue(session, "mail", b"two", headers={"a": "b"}, priority="high")
        session.flush()
        if commits:
            connection.commit()
    engine.dispose()


async def with_async_psycopg(url: str, *, commits: bool) -> None:
    """Write two messages with psycopg on asyncio."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await enqueue_async(connection, "mail", b"one", fairness_key=("acme", "eu"))
        await enqueue_async(connection.cursor(), "mail", b"two", headers={"a": "b"}, priority="high")
        if not commits:
            await connection.rollback()


async def with_async_dictionaries(url: str, *, commits: bool) -> None:
    """Write two messages with psycopg on asyncio, whose rows are dictionaries."""
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        await enqueue_async(connection, "mail", b"one", fairness_key=("acme", "eu"))
        await enqueue_async(connection.cursor(), "mail", b"two", headers={"a": "b"}, priority="high")
        if not commits:
            await connection.rollback()


async def with_asyncpg(url: str, *, commits: bool) -> None:
    """Write two messages with asyncpg, over a connection of a pool that encodes JSON by itself."""

    async def use_json(connection: asyncpg.Connection) -> None:
        await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")

    terms = asyncpg_terms(url)
    async with (
        asyncpg.create_pool(**terms, min_size=1, max_size=1, init=use_json) as pool,
        pool.acquire() as connection,
    ):
        transaction = connection.transaction()
        await transaction.start()
        await enqueue_async(connection, "mail", b"one", fairness_key=("acme", "eu"))
        await enqueue_async(connection, "mail", b"two", headers={"a": "b"}, priority="high")
        await (transaction.commit() if commits else transaction.rollback())


def asyncpg_terms(url: str) -> dict[str, str | None]:
    """Return what asyncpg needs to connect."""
    parts = urlsplit(url)
    return {"user": parts.username, "database": parts.path[1:], "host": parse_qs(parts.query)["host"][0]}


async def with_sqlalchemy_over_asyncpg(url: str, *, commits: bool) -> None:
    """Write two messages with SQLAlchemy on asyncpg, over a connection and over a session."""
    engine = create_async_engine("postgresql+asyncpg://", connect_args=asyncpg_terms(url))
    async with engine.connect() as connection, AsyncSession(connection) as session:
        await enqueue_async(connection, "mail", b"one", fairness_key=("acme", "eu"))
        await enqueue_async(session, "mail", b"two", headers={"a": "b"}, priority="high")
        if commits:
            await connection.commit()
    await engine.dispose()


async def with_async_sqlalchemy(url: str, *, commits: bool) -> None:
    """Write two messages with SQLAlchemy on asyncio, over a connection and over a session."""
    engine = create_async_engine("postgresql+psycopg://", async_creator=lambda: psycopg.AsyncConnection.connect(url))
    async with engine.connect() as connection, AsyncSession(connection) as session:
        await enqueue_async(connection, "mail", b"one", fairness_key=("acme", "eu"))
        await enqueue_async(session, "mail", b"two", headers={"a": "b"}, priority="high")
        if commits:
            await connection.commit()
    await engine.dispose()


WRITTEN = [
    ("mail", b"one", {"fairness_key": ["acme", "eu"]}),
    ("mail", b"two", {"headers": {"a": "b"}, "priority": "high"}),
]


@pytest.mark.parametrize("write", [with_psycopg, with_dictionaries, with_psycopg2, with_sqlalchemy, with_django])
def test_messages_are_written_in_the_callers_transaction(shop: str, write: Callable[..., None]) -> None:
    """A message is in the outbox if the caller's transaction commits, and is not if it rolls back."""
    write(shop, commits=False)
    assert rows(shop) == []
    write(shop, commits=True)
    assert rows(shop) == WRITTEN


@pytest.mark.parametrize(
    "write",
    [
        with_async_psycopg,
        with_async_dictionaries,
        with_asyncpg,
        with_async_sqlalchemy,
        with_sqlalchemy_over_asyncpg,
    ],
)
def test_messages_are_written_in_the_callers_async_transaction(
    shop: str, write: Callable[..., Awaitable[None]]
) -> None:
    """The same holds for the asynchronous drivers."""

    async def both() -> None:
        await write(shop, commits=False)
        assert rows(shop) == []
        await write(shop, commits=True)

    asyncio.run(both())
    assert rows(shop) == WRITTEN


def test_jobs_of_tasks_and_values_are_messages_as_well(shop: str) -> None:
    """The message of a typed task is written with all its terms, and a value as JSON."""
    app = App()

    @app.task(queue="mail", key="tenant")
    def charge(number: int, tenant: str) -> None: ...

    with psycopg.connect(shop) as connection:
        enqueue(connection, charge.queue, charge.options(delay="5m").message(7, tenant="acme"))
        enqueue(connection, "mail", json={"a": [1]}, priority="low")
        with pytest.raises(InvalidArgument, match="exactly one"):
            enqueue(connection, "mail", b"", json=None)
    terms = {"headers": {"fairlane-task": "charge"}, "fairness_key": "acme", "delay_ms": 300_000}
    assert rows(shop) == [
        ("mail", b'{"number":7,"tenant":"acme"}', terms),
        ("mail", b'{"a":[1]}', {"priority": "low"}),
    ]


def test_sql_alone_is_enough(shop: str) -> None:
    """A trigger or a program without Fairlane enqueues with an SQL function, bytes or JSON."""
    with psycopg.connect(shop) as connection:
        connection.execute("SELECT fairlane_outbox.enqueue('mail', 'one')")
        connection.execute("""SELECT fairlane_outbox.enqueue_json('mail', '{"a": 1}', '{"fairness_key": "acme"}')""")
    assert rows(shop) == [("mail", b"one", {}), ("mail", b'{"a": 1}', {"fairness_key": "acme"})]


def test_an_application_needs_only_usage_of_the_schema(shop: str) -> None:
    """A role that may use the schema can write messages, and can neither read nor change them."""
    with psycopg.connect(shop) as connection:
        connection.execute("CREATE ROLE clerk")
        connection.execute("GRANT USAGE ON SCHEMA fairlane_outbox TO clerk")
        connection.execute("SET ROLE clerk")
        enqueue(connection, "mail", b"one")
        with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
            connection.execute("SELECT * FROM fairlane_outbox.messages")
        connection.execute("RESET ROLE")
        connection.commit()
        connection.execute("REVOKE USAGE ON SCHEMA fairlane_outbox FROM clerk")
        connection.execute("DROP ROLE clerk")
    assert rows(shop) == [("mail", b"one", {})]


@pytest.mark.parametrize(
    ("queue", "terms", "said"),
    [
        ("no queue!", {}, "no queue!"),
        ("mail", {"dedup_id": "x"}, "cannot have a dedup id"),
        ("mail", {"unique_key": "x"}, "cannot have a unique key, here 'x'"),
        ("mail", {"weight": 0}, "weight"),
    ],
)
def test_an_invalid_message_is_refused_before_the_database_sees_it(
    shop: str, queue: str, terms: dict[str, object], said: str
) -> None:
    """A message that the broker would refuse raises in the application, and its transaction can go on."""
    with psycopg.connect(shop) as connection:
        with pytest.raises(InvalidArgument, match=said):
            enqueue(connection, queue, b"", **terms)  # type: ignore[arg-type]  # that is the point
        enqueue(connection, "mail", b"fine")
    assert rows(shop) == [("mail", b"fine", {})]


def test_another_kind_of_connection_is_refused() -> None:
    """An object that is no connection of a known driver is refused with the names of the drivers."""
    with pytest.raises(
        InvalidArgument, match="Expected a connection of psycopg, psycopg2, sqlalchemy or django, got int"
    ):
        enqueue(7, "mail", b"")
