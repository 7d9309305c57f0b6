"""The commands that the pages show as text run as well: with a webhook, statements, object stores and other masters.

Only the addresses of servers, of a webhook, of the object store and of masters are replaced by those of this test. The
catalog is configured in the environment, as PyIceberg finds it in production.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from fairlane.cli.main import cli
from fairlane.client import Client
from fairlane.lakehouse import open_tables
from tests.conftest import BUCKET
from tests.kit.servers.stores import S3Server
from tests.spark.queues import address
from tests.spark.test_documented_commands import SERVER, run_until, words
from tests.system.server_process import ROOT, ServerProcess
from tests.unit.alarms.test_watch import listening

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

BLOCK = re.compile(r"^ *```text\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:\w+=\S+ )?(?:fairlane|spark-submit) .*\b(?:pipeline|report|whatif|tune|forecast|alarms)\b")
TABLES = re.compile(r"--tables '?([^\s']+)")
STORE = re.compile(r"'?((?:\w+:)?)s3://analytics/fairlane\??([^\s']*)'?")
WEBHOOK = re.compile(r"https://hooks\.\S+")
MASTERS = (("--master yarn", "--master local[2]"), ("SPARK_REMOTE=sc://spark.example:15002", "SPARK_REMOTE=local[2]"))


def shown() -> list[str]:
    """Return the commands that the pages show as text."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    lines = [line for page in pages for block in BLOCK.findall(page.read_text()) for line in block.splitlines()]
    return [line for line in lines if COMMAND.match(line)]


IN_PROCESSES = [line for line in shown() if "s3://" in line or "spark-submit" in line]
TO_SERVERS = [line for line in shown() if line not in IN_PROCESSES]


@pytest.fixture
def place(server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the exported journal of a server that has two dead letters."""
    with Client(address(server)) as client:
        client.create_queue("orders", {"max_attempts": 1})
        for _ in range(3):
            client.enqueue("orders", b"", fairness_key="acme")
        done, *failed = client.lease("orders", 3)
        client.ack(done)
        for delivery in failed:
            client.nack(delivery, error="timeout")
    command("--server", address(server), "journal", "export", "--to", str(tmp_path / "exports"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments: str) -> str:
    """Run a command in this process, and return what it prints."""
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_each_kind_of_command_is_among_those_shown() -> None:
    """There are commands for a webhook, for statements, for each format in S3 and for two other masters."""
    kinds = ("--webhook ", "--statements ", "delta:s3://", "iceberg:s3://", " s3://", "spark-submit ", "SPARK_REMOTE=")
    assert [kind for kind in kinds if not any(kind in line for line in shown())] == []
    assert len(TO_SERVERS) == 2


def test_the_webhook_is_told_of_the_dead_letters(spark: SparkSession, server: ServerProcess, place: Path) -> None:
    """The pipeline posts the new error of the dead letters to the address in the command."""
    assert spark is not None  # the command takes the session that is there
    [line] = [line for line in TO_SERVERS if "--webhook" in line]
    with listening() as listener:
        arguments = [WEBHOOK.sub(listener.url, SERVER.sub(address(server), word)) for word in words(line, place)]
        run_until(arguments, lambda: bool(listener.told))
    [told] = listener.told
    assert [(alarm["kind"], alarm["queue"]) for alarm in told["raised"]] == [("new_error", "orders")]


def test_tables_and_statements_are_verified_together(spark: SparkSession, server: ServerProcess, place: Path) -> None:
    """The statements that were issued from the tables of a server agree with them, and these with the server."""
    assert spark is not None  # the command takes the session that is there
    guide = (ROOT / "docs/guides/chargeback.md").read_text()
    (place / "prices.toml").write_text(guide.split("```toml\n")[1].split("```")[0])
    statements = ["--tables", "tables/", "--statements", "statements/", "--prices", "prices.toml"]
    command("--server", address(server), "pipeline", "run", "--tables", "tables/", "--once")
    command("chargeback", "issue", *statements, "--include-newest")
    [line] = [line for line in TO_SERVERS if "--statements" in line]
    told = command(*[SERVER.sub(address(server), word) for word in words(line, place)])
    assert "the tables agree with the broker" in told
    assert "the statements agree with the tables" in told


@pytest.mark.parametrize("line", IN_PROCESSES)
def test_a_process_makes_tables_from_an_export(
    line: str, place: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell runs the command, and the tables at the address in it have the dead letters of the export."""
    for name, value in environment(place).items():
        monkeypatch.setenv(name, value)
    here = STORE.sub(rf"'\1{s3.url(BUCKET, place.name)}&\2'", line)
    for master, local in MASTERS:
        here = here.replace(master, local)
    done = subprocess.run(["sh", "-c", here], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    [tables] = TABLES.findall(here)
    assert sum(open_tables(tables).dataset("dead_letters").to_table()["count"].to_pylist()) == 2


def environment(folder: Path) -> dict[str, str]:
    """Return what an operator configures: a catalog, and where the programs are."""
    return {
        "PYICEBERG_CATALOG__PROD__TYPE": "sql",
        "PYICEBERG_CATALOG__PROD__URI": f"sqlite:///{folder}/catalog.db",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",  # with it, the server of a Connect session has any free port
    }
