"""Real servers, started once for all tests that want them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.kit.servers.stores import PostgresServer, S3Server, ServerMissing

BUCKET = "fairlane-tests"

# How long an example takes says more about the machine, and about coverage's tracer, than about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that is quick, and would lose everything in a crash."""
    try:
        server = PostgresServer(fsync=False)
    except ServerMissing as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def durable_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that loses nothing, whatever happens to it."""
    try:
        server = PostgresServer(fsync=True)
    except ServerMissing as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 with a bucket for tests."""
    try:
        server = S3Server()
    except ServerMissing as error:
        pytest.skip(str(error))
    with server:
        server.make_bucket(BUCKET)
        yield server
