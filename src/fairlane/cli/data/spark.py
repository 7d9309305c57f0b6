"""Options and helpers of the commands that run on Spark. Spark is imported only when one of them runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from fairlane.cli.session import Session
from fairlane.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fairlane.spark.source.server_address import ServerAddress

T = TypeVar("T")

MASTER = click.option(
    "--master", help="Spark master. Default: the configured one, otherwise all cores of this machine, local[*]."
)


def require_spark() -> None:
    """Check that Spark is installed. Raises InvalidArgument if Spark is not installed."""
    try:
        importlib.import_module("fairlane.spark")
    except ImportError as error:
        raise InvalidArgument(
            "This command needs Spark, which is not installed: pip install 'fairlane[spark]'."
        ) from error


def begin_spark(master: str | None, *, defaults: Mapping[str, str] | None = None) -> SparkSession:
    """Return a Spark session. Raises InvalidArgument if Spark is not installed."""
    require_spark()
    from fairlane.spark import spark_session

    return spark_session(master=master, defaults=defaults)


@contextmanager
def own_spark(master: str | None, *, defaults: Mapping[str, str]) -> Iterator[SparkSession]:
    """Return a Spark session, and stop Spark at the end, unless it was there before."""
    require_spark()
    from fairlane.spark.session import existing_session

    is_ours = existing_session() is None
    spark = begin_spark(master, defaults=defaults)
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


def on_spark(spark: SparkSession | None, work: Callable[[], T]) -> T:
    """Run work on Spark so that an interrupt stops it without a Java stack trace; without a session, just run it."""
    if spark is None:
        return work()
    from fairlane.spark.interrupts import interruptible

    return interruptible(spark, work)


def server_address_of(session: Session) -> ServerAddress:
    """Return the server's address for Spark's tasks.

    Raises:
        InvalidArgument: the broker is in a data folder, which only one process can open.
    """
    from fairlane.spark.source.server_address import ServerAddress

    endpoint = session.endpoint
    if endpoint.is_embedded:
        raise InvalidArgument(
            "Spark cannot read a data folder that this command opens; run `fairlane serve` and leave out --data."
        )
    return ServerAddress(
        server=endpoint.server,
        api_key=endpoint.api_key,
        ca=endpoint.ca,
        certificate=endpoint.certificate,
        certificate_key=endpoint.certificate_key,
        timeout_s=endpoint.timeout_s,
    )
