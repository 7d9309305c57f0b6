"""The examples for schedulers and other tools are well formed, and name what exists."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import yaml
from click.testing import CliRunner

from fairlane.cli.main import cli

EXAMPLES = Path(__file__).parents[2] / "examples"


def is_known(arguments: list[str]) -> bool:
    """Return whether the command line parses."""
    return CliRunner().invoke(cli, [*arguments, "--help"]).exit_code == 0


def test_the_airflow_example_is_python_and_its_command_exists() -> None:
    """The DAG compiles, and submits a command with options that there are."""
    tree = ast.parse((EXAMPLES / "airflow" / "fairlane_tables.py").read_text())
    (found,) = [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "application_args"]
    assert isinstance(found.value, ast.List)
    words = [str(word.value) if isinstance(word, ast.Constant) else "x" for word in found.value.elts]
    assert is_known(words)


def test_the_databricks_bundle_is_yaml_and_its_command_exists() -> None:
    """The bundle parses, starts the command of the wheel, and passes options that there are."""
    bundle = yaml.safe_load((EXAMPLES / "databricks" / "databricks.yml").read_text())
    (task,) = bundle["resources"]["jobs"]["fairlane_tables"]["tasks"]
    assert task["python_wheel_task"]["entry_point"] == "fairlane"
    assert is_known(task["python_wheel_task"]["parameters"])


def test_the_dbt_sources_are_yaml_with_columns() -> None:
    """The sources parse, and every table has columns; tools/sync_tables.py keeps them equal to the schemas."""
    (source,) = yaml.safe_load((EXAMPLES / "dbt" / "models" / "fairlane.yml").read_text())["sources"]
    assert all(column["name"] and column["description"] for table in source["tables"] for column in table["columns"])


def test_the_main_file_for_spark_submit_prints_its_path_and_is_the_command() -> None:
    """Without arguments it prints its path, and run from that path it is the command ``fairlane``."""
    told = subprocess.run(
        [sys.executable, "-m", "pyspark_fairlane.submit"], capture_output=True, text=True, check=True
    ).stdout.strip()
    answer = subprocess.run(
        [sys.executable, told, "pipeline", "run", "--help"], capture_output=True, text=True, check=True
    )
    assert "--metrics-listen" in answer.stdout
