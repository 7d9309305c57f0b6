"""Threads that work with a Spark session.

PySpark pins each Python thread to a thread of the JVM, and that one starts without an active session. Reading does not
mind: ``spark.read`` brings its session along. Writing does: Spark looks up the name of a format in the *active* session
of the thread, and without one it knows Java classes only, so ``df.write.format("fairlane")`` ends in
``DATA_SOURCE_NOT_FOUND``. ``pyspark.InheritableThread`` copies job properties and tags, but not the session.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession, is_remote

P = ParamSpec("P")
T = TypeVar("T")

THREADS_MAX: Final = 4
"""How many steps run at once. More would only add plans in memory: the tasks share the same cores."""
_DESCRIPTION: Final = "spark.job.description"
_AGAIN_S: Final = 0.2
"""The interval at which jobs of steps are cancelled after one of them has failed."""


def in_thread(spark: SparkSession, work: Callable[P, T]) -> Callable[P, T]:
    """Return work that another thread can run: with this session, and with the job properties of the caller.

    It suits ``threading.Thread``, ``pyspark.InheritableThread`` and pools of threads alike. Descriptions and tags of
    jobs are copied when this is called, not when the work runs.
    """
    inherit: Callable[[Callable[P, T]], Callable[P, T]] = inheritable_thread_target(spark)

    def run(*arguments: P.args, **named: P.kwargs) -> T:
        with active(spark):
            return work(*arguments, **named)

    return inherit(run)


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one of the calling thread's JVM thread. Spark Connect needs no such thing."""
    if is_remote():
        yield
        return
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)  # no public call does this and nothing else
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextmanager
def described(spark: SparkSession, description: str) -> Iterator[None]:
    """Set the description that Spark's UI shows for jobs of the calling thread. Spark Connect has none."""
    if is_remote():
        yield
        return
    properties = spark.sparkContext._jsc  # unlike the Python class it takes None, for no description
    before = properties.getLocalProperty(_DESCRIPTION)
    properties.setLocalProperty(_DESCRIPTION, description)
    try:
        yield
    finally:
        properties.setLocalProperty(_DESCRIPTION, before)


def add_tag(spark: SparkSession, tag: str) -> None:
    """Tag the next jobs of the calling thread, and of threads that inherit from it."""
    if is_remote():
        spark.addTag(tag)
    else:  # the tags of a classic session are known to the thread that set them only, those of the context to all
        spark.sparkContext.addJobTag(tag)


def cancel_tagged(spark: SparkSession, tag: str) -> None:
    """Cancel the running jobs with a tag, and no others."""
    if is_remote():
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


def run_together(spark: SparkSession, steps: Sequence[Callable[[], object]]) -> None:
    """Run independent steps at once, each in a thread of its own, and wait for all of them.

    Spark plans and compiles a query in one thread, and the last tasks of a job leave cores idle; jobs of other steps
    fill both gaps. If a step fails, the jobs of the others are cancelled, and its error is raised.
    """
    tag = f"fairlane-steps-{uuid.uuid4().hex}"

    def tagged(step: Callable[[], object]) -> None:
        add_tag(spark, tag)
        step()

    with ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="fairlane-step") as pool:
        futures = [pool.submit(in_thread(spark, tagged), step) for step in steps]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            # A step that still plans has no job to cancel yet. To ``wait``, a step that never began is never done.
            while running := [future for future in futures if not future.done()]:
                cancel_tagged(spark, tag)
                wait(running, timeout=_AGAIN_S)
            raise
