"""Runs work on Spark so that an interrupt cancels its jobs and ends without a Java stack trace."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final, TypeVar

from pyspark import InheritableThread
from pyspark.sql import SparkSession

T = TypeVar("T")

_AGAIN_S: Final = 0.2
"""The interval at which jobs of interrupted work are cancelled, while it still starts some."""
_TIMES: Final = 50
"""How often to wait; then give up on work that waits for something else than Spark."""


def interruptible(spark: SparkSession, work: Callable[[], T]) -> T:
    """Run work on Spark in its own thread, and return its result.

    A thread that waits for an answer of the JVM can't be interrupted without leaving the answer unread, and whatever it
    asks next, to tidy up for instance, would get that one. So the caller's thread waits here instead. When it is
    interrupted, Spark says nothing any more, all its jobs are cancelled, and the work is given time to tidy up. Raises
    KeyboardInterrupt if it was interrupted. What the work raised because of that is left out.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            outcome.set_exception(error)

    thread = InheritableThread(target=run, session=spark, daemon=True, name="fairlane-spark")
    with _plain_interrupts():
        thread.start()
        try:
            return outcome.result()
        except KeyboardInterrupt:
            context = spark.sparkContext
            context.setLogLevel("OFF")
            for _ in range(_TIMES):
                if not thread.is_alive():
                    break
                context.cancelAllJobs()
                thread.join(_AGAIN_S)
            raise


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Restore Python's interrupt handler: Spark's own would cancel jobs before logging can be silenced."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
