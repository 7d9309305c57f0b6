"""Databases for tests of the outbox: each test has its own, in a server that they share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from fairlane.outbox.schema import INSTALL
from tests.kit.servers.stores import PostgresServer

_numbers = itertools.count()


@contextmanager
def empty_database(server: PostgresServer) -> Iterator[str]:
    """Create a database, yield its URL, and drop it afterwards."""
    name = f"outbox_{next(_numbers)}"
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield server.url.replace("/postgres?", f"/{name}?")
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def database(server: PostgresServer) -> Iterator[str]:
    """Create a database with an outbox and a table of orders."""
    with empty_database(server) as url:
        with psycopg.connect(url) as connection:
            connection.execute(INSTALL)
            connection.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY)")
        yield url
