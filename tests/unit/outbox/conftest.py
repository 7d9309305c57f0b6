"""Fixtures of the outbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.servers.stores import PostgresServer
from tests.unit.outbox.databases import database


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database with an empty outbox."""
    with database(postgres) as url:
        yield url
