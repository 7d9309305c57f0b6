"""Settings of Spark that come from outside this program: ``spark-submit``, the environment, ``spark-defaults.conf``.

A setting from outside wins over ours, so a job runs on the cluster that it was submitted to. Spark itself would let the
program win, and a job with a master of its own would silently ignore the cluster.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from pyspark import SparkConf
from pyspark.core.context import SparkContext

MASTER: Final = "spark.master"
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""The variable of a Python process that ``spark-submit`` started: its JVM runs already."""
REMOTE: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""The variables of a process that uses Spark Connect."""
_OPTIONS: Final = {
    "--master": MASTER,
    "--name": "spark.app.name",
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
}
"""The options of ``spark-submit`` that set what we set too."""


def given_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings from outside, as far as they can be known before there is a session."""
    if SUBMITTED in environ:
        SparkContext._ensure_initialized()  # connects to the JVM that spark-submit started
        return dict(SparkConf().getAll())
    given = dict(_defaults(environ))
    if master := environ.get("MASTER"):
        given[MASTER] = master
    return given | dict(_submit_arguments(environ.get("PYSPARK_SUBMIT_ARGS", "")))


def conf_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of Spark's own settings, if there is one."""
    if named := environ.get("SPARK_CONF_DIR"):
        return Path(named)
    home = environ.get("SPARK_HOME")
    return Path(home) / "conf" if home and (Path(home) / "conf").is_dir() else None


def _defaults(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the settings in ``spark-defaults.conf``: a name, blanks or an equals sign, and a value in each line."""
    folder = conf_folder(environ)
    path = None if folder is None else folder / "spark-defaults.conf"
    if path is None or not path.is_file():
        return
    for line in path.read_text().splitlines():
        name, _, value = line.strip().replace("=", " ", 1).partition(" ")
        if name.startswith("spark."):
            yield name, value.strip()


def _submit_arguments(text: str) -> Iterator[tuple[str, str]]:
    for name, value in pairwise(
        word for part in shlex.split(text) for word in part.split("=", 1 if part[:2] == "--" else 0)
    ):
        if name in _OPTIONS:
            yield _OPTIONS[name], value
        elif name in ("--conf", "-c"):
            setting, _, text = value.partition("=")
            yield setting, text
