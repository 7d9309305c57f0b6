"""Real servers, started once for all tests that want them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.kit.servers.azurite import AzuriteServer
from tests.kit.servers.stores import PostgresServer, S3Server, ServerMissing

pytest_plugins = ("tests.kit.skips",)
BUCKET = "fairlane-tests"

_TESTS = Path(__file__).parent
LONGEST = (
    "docs/test_examples.py",
    "spark/test_tables_fairness.py",
    "spark/test_pipeline.py",
    "spark/test_mixed_load.py",
    "spark/test_journal_stream.py",
    "spark/test_sink.py",
    "spark/test_lakehouse.py",
    "spark/test_rebuild.py",
    "spark/test_journal_source.py",
    "spark/test_pipeline_broker.py",
    "spark/test_documented_commands.py",
    "spark/test_nodes.py",
    "spark/test_archive.py",
    "spark/test_pipeline_epochs.py",
    "spark/test_queue_source.py",
    "spark/test_pipeline_stream.py",
    "spark/test_whatif_reproduction.py",
    "spark/test_outage.py",
    "spark/test_session.py",
    "spark/test_pauses.py",
    "spark/test_whatif_simulation.py",
    "spark/test_whatif_comparison.py",
    "system/test_broker_killed.py",
    "system/test_cluster.py",
    "system/test_cli.py",
    "simulation/test_planted_bugs.py",
    "simulation/test_simulation.py",
    "simulation/test_more_seeds.py",
    "unit/broker/test_shared_throttles.py",
    "unit/scheduler/test_known_faults.py",
    "contract/test_stores.py",
    "contract/test_tables.py",
)
"""Files that take a minute or more, the longest first. One that started last would run alone at the end."""

# How long an example takes says more about the machine, and about coverage's tracer, than about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first; ``--dist loadfile`` with ``--no-loadscope-reorder`` hands them out in this order."""
    places = {_TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


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


@pytest.fixture(scope="session")
def azure() -> Iterator[AzuriteServer]:
    """An Azure Blob Storage with a container for tests, whose credentials are in the environment meanwhile."""
    try:
        server = AzuriteServer()
    except ServerMissing as error:
        pytest.skip(str(error))
    with server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.credentials.items():
            patch.setenv(name, value)
        server.make_container(BUCKET)
        yield server
