"""The example of a declarative pipeline, run by Spark's own command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fairlane.spark.pipeline import JournalFolder, run_pipeline
from fairlane.spark.pipeline.few_events import SETTINGS
from fairlane.spark.tables import TABLES
from tests.spark.test_pipeline import a_story, contents, write_segment
from tests.system.server_process import ROOT

EXAMPLE = ROOT / "examples" / "declarative_pipeline"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_declarative_pipeline_makes_the_tables_of_the_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    """Of a journal with a gap it makes every table, with the rows that ``run_pipeline`` makes."""
    story = a_story()
    write_segment(tmp_path / "journal", story[:7])
    write_segment(tmp_path / "journal", story[8:])
    run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables", on_trimmed="skip")
    made = run_example(tmp_path)
    expected = contents(spark, tmp_path / "tables")
    assert expected["gaps"]
    for name, table in TABLES.items():
        told = spark.read.schema(table.schema).parquet(str(made / name)).select(*table.schema.fieldNames())
        assert sorted(map(str, told.collect())) == expected[name], name


def run_example(folder: Path) -> Path:
    """Run the example on a journal, with settings for few rows, and return the folder of its tables."""
    shutil.copytree(EXAMPLE, folder / "example")
    spec = folder / "example" / "spark-pipeline.yml"
    settings = "".join(f'  {name}: "{value}"\n' for name, value in SETTINGS.items())
    told = re.sub("(?<=storage: ).*", (folder / "storage").as_uri(), spec.read_text())
    spec.write_text(re.sub("(?<=fairlane.journal: ).*", str(folder / "journal"), told) + settings)
    command = [str(Path(sys.executable).parent / "spark-pipelines"), "run", "--spec", str(spec)]
    # SPARK_TESTING is how Spark itself says that the server of this session has any free port.
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environ)
    assert "Run is COMPLETED" in done.stdout + done.stderr, done.stderr[-4_000:]
    return folder / "spark-warehouse"
