"""Checks that executors run the same versions of Python, PySpark and Fairlane as the driver."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fairlane import __version__
from fairlane.errors import ExecutorMismatch

_CAUSE_LENGTH: Final = 300


class Versions(NamedTuple):
    """The versions that a process runs."""

    python: str
    pyspark: str
    fairlane: str


def versions() -> Versions:
    """Return the versions of this process; of Python only major and minor."""
    return Versions(".".join(platform.python_version_tuple()[:2]), pyspark.__version__, __version__)


def check_versions(driver: Versions) -> None:
    """Refuse to work for a driver with other versions. Raises ExecutorMismatch if a version differs."""
    if (here := versions()) != driver:
        raise ExecutorMismatch(f"An executor on {platform.node()} has {_told(here)}, the driver {_told(driver)}.")


def check_executors(spark: SparkSession) -> None:
    """Check the versions of the executors with a small job; it sees those that take part in it.

    Raises:
        ExecutorMismatch: one has no Fairlane, or other versions than the driver.
    """
    parts = spark.sparkContext.defaultParallelism
    columns = "host string, python string, pyspark string, fairlane string"
    frame = spark.range(0, parts, 1, parts).mapInArrow(_probe(), columns)
    try:
        rows = frame.distinct().collect()
    except PySparkException as error:
        cause = str(error)[:_CAUSE_LENGTH]
        raise ExecutorMismatch(f"Could not read the versions of the executors: {cause}") from error
    driver = versions()
    for row in rows:
        if (there := Versions(row.python, row.pyspark, row.fairlane)) != driver:
            raise ExecutorMismatch(f"The executor on {row.host} has {_told(there)}, the driver {_told(driver)}.")


def _told(found: Versions) -> str:
    fairlane = f"Fairlane {found.fairlane}" if found.fairlane else "no Fairlane"
    return f"Python {found.python}, PySpark {found.pyspark} and {fairlane}"


def _probe() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for executors. It is sent as a whole, because they may lack Fairlane."""

    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        try:
            fairlane = str(importlib.import_module("fairlane").__version__)
        except ImportError:
            fairlane = ""
        python = ".".join(platform.python_version_tuple()[:2])
        row = [platform.node(), python, pyspark.__version__, fairlane]
        yield pa.RecordBatch.from_arrays([pa.array([value]) for value in row], names=names)

    names = ["host", *Versions._fields]
    return probe
