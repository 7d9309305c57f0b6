"""One Spark session for all tests here: a JVM costs five seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fairlead.spark import spark_session
from tests.system.server_process import ServerProcess, serving


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two threads that tries a task up to four times, as a cluster does."""
    session = spark_session("fairlead-tests", master="local[2,4]")
    yield session
    session.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with a queue for nobody yet."""
    with serving(tmp_path / "data") as process:
        yield process
