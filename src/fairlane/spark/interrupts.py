"""Runs work on Spark so that an interrupt cancels its jobs, and theirs only."""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final, TypeVar

from pyspark.sql import SparkSession

from fairlane.spark.threads import add_tag, cancel_tagged, in_thread

T = TypeVar("T")

_AGAIN_S: Final = 0.2
"""The interval at which jobs of interrupted work are cancelled, while it still starts some."""
_TIMES: Final = 50
"""How often to wait; then give up on work that waits for something else than Spark."""


def interruptible(spark: SparkSession, work: Callable[[], T]) -> T:
    """Run work on Spark in its own thread, and return its result.

    A thread that waits for an answer of the JVM can't be interrupted without leaving the answer unread, and whatever it
    asks next, to tidy up for instance, would get that one. So the caller's thread waits here instead. All jobs of the
    work have a tag. When the caller is interrupted, the jobs with this tag are cancelled, and the work is given time to
    tidy up. Other jobs of the session go on. Raises KeyboardInterrupt if it was interrupted. What the work raised
    because of that is left out.
    """
    outcome: Future[T] = Future()
    tag = f"fairlane-{uuid.uuid4().hex}"

    def tagged() -> T:
        add_tag(spark, tag)
        return work()

    def run() -> None:
        try:
            outcome.set_result(inherited())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            outcome.set_exception(error)

    inherited = in_thread(spark, tagged)
    thread = threading.Thread(target=run, daemon=True, name="fairlane-spark")
    with _plain_interrupts():
        thread.start()
        try:
            return outcome.result()
        except KeyboardInterrupt:
            _cancel(spark, tag, thread)
            raise


def _cancel(spark: SparkSession, tag: str, thread: threading.Thread) -> None:
    """Cancel the jobs of a thread until it ends."""
    for _ in range(_TIMES):
        if not thread.is_alive():
            break
        cancel_tagged(spark, tag)
        thread.join(_AGAIN_S)


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Restore Python's interrupt handler: Spark's own would cancel all jobs of the application."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
