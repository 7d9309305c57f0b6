"""What the commands have in common that run on Spark. Spark is imported only when one of them is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import click

from fairlane.cli.session import Session
from fairlane.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fairlane.spark.source.server_address import ServerAddress

T = TypeVar("T")

MASTER = click.option(
    "--master", default="local[*]", show_default=True, help="Where Spark runs: this machine, or any master."
)


def require_spark() -> None:
    """Refuse to go on without Spark.

    Raises:
        InvalidArgument: Spark is not installed.
    """
    try:
        import fairlane.spark  # noqa: F401 - see above
    except ImportError as error:
        raise InvalidArgument(
            "This command runs on Spark, which is an extra: pip install 'fairlane[spark]'."
        ) from error


def begin_spark(master: str, *, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session of Spark; ``conf`` wins over our own settings.

    Raises:
        InvalidArgument: Spark is not installed.
    """
    require_spark()
    from fairlane.spark import spark_session

    return spark_session(master=master, conf=conf)


def on_spark(spark: SparkSession | None, work: Callable[[], T]) -> T:
    """Do work on Spark so that an interrupt ends it, and no stacks are printed; without Spark just do it."""
    if spark is None:
        return work()
    from fairlane.spark.interrupting import interruptible

    return interruptible(spark, work)


def place_of(session: Session) -> ServerAddress:
    """Return the server as Spark's tasks reach it.

    Raises:
        InvalidArgument: the broker is a folder, which only this process could open.
    """
    from fairlane.spark.source.server_address import ServerAddress

    place = session.place
    if place.is_embedded:
        raise InvalidArgument("Spark reaches a broker through a server: start 'fairlane serve', or export the journal.")
    return ServerAddress(
        server=place.server,
        api_key=place.api_key,
        ca=place.ca,
        certificate=place.certificate,
        certificate_key=place.certificate_key,
        timeout_s=place.timeout_s,
    )
