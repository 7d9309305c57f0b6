"""One Spark session for all tests here: a JVM costs five seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fairlane.spark import spark_session
from tests.kit.java import LEAN
from tests.system.server_process import ServerProcess, serving


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two threads that tries a task up to four times, as a cluster does."""
    session = spark_session("fairlane-tests", master="local[2,4]", conf=LEAN)
    yield session
    session.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with a queue for nobody yet."""
    with serving(tmp_path / "data") as process:
        yield process


@pytest.fixture(scope="module")
def small_data(spark: SparkSession) -> Iterator[None]:
    """Switch off code generation and adaptive planning in Spark, which take far longer than a few rows."""
    settings = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, known in before.items():
        if known is not None:
            spark.conf.set(name, known)
