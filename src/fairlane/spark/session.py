"""Creates a Spark session that starts in seconds, logs errors only, and finds Java and Python."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from fairlane.spark.executors import check_executors
from fairlane.spark.given_settings import MASTER, REMOTE, SUBMITTED, conf_folder, given_settings
from fairlane.spark.java import find_java, make_java_home

_LOGGING: Final = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of every new session. Without the first, a Python data source with filter pushdown cannot be read."""

LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
}
"""Further settings of a new local session."""

_PARTITIONS_PER_THREAD: Final = 4
"""The shuffle partitions of a new local session: few, but small enough to be sorted in memory."""
_LOCAL_MASTER: Final = re.compile(r"local(\[.*\])?")


def spark_session(
    app_name: str = "fairlane",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
    log_level: str = "error",
) -> SparkSession:
    """Return the session of this process, created if there is none.

    An existing session is returned as it is. With ``conf`` a new session of the same application is returned instead,
    so the settings of the existing one stay what they are.

    What is configured outside this program wins over our defaults: the master and the settings of ``spark-submit``, of
    ``SPARK_REMOTE``, ``MASTER`` and ``PYSPARK_SUBMIT_ARGS``, and of ``spark-defaults.conf``. So do the variables
    JAVA_HOME, PYSPARK_PYTHON, SPARK_CONF_DIR and SPARK_LOCAL_IP. On a cluster the executors are asked for their
    versions before anything else runs there.

    Args:
        app_name: what a new session is called.
        master: where a new session runs, whatever else is configured; ``local[2,4]`` is two threads here with up to
            four attempts at a task. Without it, and if nothing is configured, it is ``local[*]``.
        conf: settings of Spark that win over all others.
        defaults: settings of a new session that win over ours only.
        log_level: of Spark's own logging on standard error, unless Spark has a folder of settings.

    Raises:
        JavaNotFound: there is no Java that is new enough.
        ExecutorMismatch: executors have no Fairlane, or another version of it, of PySpark or of Python.
    """
    if (known := existing_session()) is not None:
        return _with_settings(known, conf) if conf else known
    if any(name in os.environ for name in REMOTE):
        return _built({**DEFAULTS, **(defaults or {}), **(conf or {})})
    given = given_settings(os.environ)
    told = {**({} if master is None else {MASTER: master}), **(conf or {})}
    where = told.get(MASTER) or given.get(MASTER) or "local[*]"
    is_local = _LOCAL_MASTER.fullmatch(where) is not None
    ours = {"spark.app.name": app_name, MASTER: where, **DEFAULTS, **(defaults or {})}
    if SUBMITTED in os.environ:  # its JVM runs already, with the environment and the memory that it was given
        spark = _built({**_without(ours, given), **told})
    else:
        folder = _temporary_folder()
        if is_local:
            ours = _local_settings(where, folder) | ours
        with _environment(_variables(folder, log_level=log_level, is_local=is_local)):
            spark = _built({**_without(ours, given), **told})
    if not is_local:
        check_executors(spark)
    return spark


def existing_session() -> SparkSession | None:
    """Return the session that this thread, or this process, has."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def copy_settings(source: SparkSession, target: SparkSession, conf: Mapping[str, str]) -> None:
    """Give a session the settings of another one and those of ``conf``, as far as they can still be set."""
    for name, value in {**source.conf.getAll, **conf}.items():
        if target.conf.isModifiable(name):
            target.conf.set(name, value)


def _built(settings: Mapping[str, str]) -> SparkSession:
    return SparkSession.builder.config(map=dict(settings)).getOrCreate()


def _without(settings: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name not in given}


def _with_settings(spark: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    """Return another session of the same application, with settings of its own as far as they can still be set."""
    own = spark.newSession()
    copy_settings(spark, own, conf)
    return own


def _local_settings(master: str, folder: Path) -> dict[str, str]:
    return {
        **LOCAL,
        "spark.sql.shuffle.partitions": str(_PARTITIONS_PER_THREAD * _threads(master)),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }


def _threads(master: str) -> int:
    """Return the number of threads of a local master, at least two."""
    number = master.removeprefix("local").strip("[]").split(",")[0]
    if number == "*":
        return max(2, os.cpu_count() or 2)
    return max(2, int(number)) if number.isdecimal() else 2


def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fairlane-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _variables(folder: Path, *, log_level: str, is_local: bool) -> dict[str, str]:
    """Return the environment of the JVM."""
    logging = folder / "conf" / "log4j2.properties"
    logging.parent.mkdir()
    logging.write_text(_LOGGING.replace("{level}", log_level))
    conf = conf_folder(os.environ) or logging.parent
    kept = {"PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(conf)}
    if is_local:
        kept["SPARK_LOCAL_IP"] = "127.0.0.1"
    java = make_java_home(folder / "java", java=find_java(os.environ))
    return kept | {name: os.environ[name] for name in kept if name in os.environ} | {"JAVA_HOME": str(java)}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the JVM starts, and restore those of this process afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
