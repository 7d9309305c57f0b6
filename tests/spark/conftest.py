"""One Spark session for all tests here: a JVM costs five seconds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fairlane.spark import spark_session
from fairlane.spark.pipeline.few_events import SETTINGS
from tests.kit.java import LEAN
from tests.system.server_process import ROOT, ServerProcess, serving

SMALL_DATA = {"spark.python.sql.dataFrameDebugging.enabled": "false", **SETTINGS}
"""Without code generation, adaptive planning and the lines of expressions, which take far longer than a few rows. The
examples of the docs and the tests of commands run with the settings that users have."""

TWIN = ROOT / "src" / "fairlane" / "spark" / "whatif" / "twin"


def numba_cache() -> str:
    """Return a folder for what numba compiles, of its own for each state of the source.

    Numba itself notices no change in a function that another compiled one calls.
    """
    source = b"".join(file.read_bytes() for file in sorted(TWIN.glob("*.py")))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return str(cache / "fairlane" / f"numba-{hashlib.sha256(source).hexdigest()[:16]}")


os.environ.setdefault("NUMBA_CACHE_DIR", numba_cache())  # before anything imports numba


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two threads that tries a task up to four times, as a cluster does."""
    session = spark_session("fairlane-tests", master="local[2,4]", conf=LEAN | SMALL_DATA)
    yield session
    session.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with a queue for nobody yet."""
    with serving(tmp_path / "data") as process:
        yield process
