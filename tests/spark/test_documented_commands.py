"""Every command in the documentation that needs Spark runs exactly as it is written there.

A real shell splits and expands the lines, so a glob or a quote that is wrong on the page is wrong here. Only the
addresses of servers, the folder of what-if's journal and the days to rebuild are replaced by those of this test. What
would go on without an end is interrupted: the pipeline once its tables are there, and ``tune`` while it waits for a
window of traffic; ``test_tune_server`` has its rounds.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from fairlane.cli.errors import INTERRUPTED, NOTHING
from fairlane.cli.main import cli
from fairlane.client import Client
from fairlane.spark.pipeline import read_manifest
from fairlane.testing.stepped import SteppedBroker
from tests.spark.queues import address, until
from tests.spark.test_pipeline_broker import export
from tests.system.server_process import ROOT, ServerProcess
from tests.unit.forecast.recorded_days import RecordedDays

pytestmark = pytest.mark.timeout(600)

BLOCK = re.compile(r"^ *```(?:sh|bash|shell|console)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
COMMANDS = ("pipeline", "backfill", "archive", "report", "whatif", "advise", "capacity", "tune", "forecast", "alarms")
NEEDS_SPARK = re.compile(rf"\bfairlane\b.* ({'|'.join(COMMANDS)}|redrive .*--where)\b")
SERVER = re.compile(r"https?://[\w.]+:7420(?:,https?://[\w.]+:7420)*")
DAY = re.compile(r"\d{4}-\d\d-\d\d")
EXPORT = "/var/lib/fairlane/export"
SHELL = 'exec 3>&1; fairlane() { printf "%s\\0" "$@" >&3; }; '


def commands(page: Path) -> list[str]:
    """Return the commands of a page that need Spark, as they are written."""
    lines = [line for block in BLOCK.findall(page.read_text()) for line in block.replace("\\\n", " ").splitlines()]
    return [line.strip() for line in lines if NEEDS_SPARK.search(line)]


PAGES = {
    str(page.relative_to(ROOT)): found
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if (found := commands(page))
}


@contextmanager
def in_folder(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Read relative paths in a folder, as a Java does that is started there."""
    hadoop: Any = spark._jvm and spark._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    files.setWorkingDirectory(hadoop.Path(str(folder)))
    try:
        yield
    finally:
        files.setWorkingDirectory(before)


@pytest.fixture
def place(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder with what the pages assume: orders in files, exported journals, and a server with dead letters."""
    with Client(address(server)) as client:
        client.create_queue("orders", {"max_attempts": 1})
        for total in (50, 150, 250):
            client.enqueue("orders", json.dumps({"total": total}).encode(), fairness_key="acme")
        for delivery in client.lease("orders", 3):
            client.nack(delivery, error="timeout")
        client.create_queue("mail")
        for tenant in ["acme", "beta"] * 40:
            client.enqueue("mail", b"hello", fairness_key=tenant)
        while leased := client.lease("mail", 1):
            client.ack(leased[0])
    export = ["--server", address(server), "journal", "export", "--to", str(tmp_path / "exports")]
    assert CliRunner().invoke(cli, export).exit_code == 0
    shutil.copytree(tmp_path / "exports", tmp_path / "journal")
    record_mail(tmp_path / "recorded")
    monkeypatch.setenv("FAIRLANE_SERVER", address(server))
    monkeypatch.chdir(tmp_path)
    with in_folder(spark, tmp_path):
        yield tmp_path


def record_mail(folder: Path) -> None:
    """Export the journal of a worker that takes 50 ms for a mail, of ten that come each second."""
    broker = SteppedBroker()
    broker.create_queue("mail")
    for _ in range(60):
        for tenant in ("acme", "beta") * 5:
            broker.enqueue("mail", b"hello", fairness_key=tenant)
        for _ in range(10):
            (delivery,) = broker.lease("mail", 1, owner="worker-1")
            broker.advance(50)
            broker.ack(delivery)
        broker.advance(500)
    export(broker, folder)


def write_orders(spark: SparkSession, folder: Path) -> None:
    """Write four orders in two files, two of them placed from March on."""
    placed = "element_at(array('2026-02-27', '2026-02-28', '2026-03-01', '2026-03-02'), int(id) + 1)"
    spark.range(4).selectExpr("id AS number", "'acme' AS tenant", f"{placed} AS placed").repartition(2).write.parquet(
        str(folder / "orders")
    )


def words(line: str, place: Path) -> list[str]:
    """Return the arguments that a shell would pass to the command."""
    here = line.replace(EXPORT, str(place / "recorded"))
    if " rebuild " in line:
        manifest = read_manifest(place / "tables")
        here = DAY.sub(str(manifest.days[-1] if manifest is not None else ""), here)
    answer = subprocess.run(["sh", "-c", SHELL + here], cwd=place, capture_output=True, check=True)
    return answer.stdout.decode().split("\0")[:-1]


def run(arguments: list[str], place: Path) -> None:
    """Run a command with success; one that would go on without an end is interrupted."""
    if "tune" in arguments:
        interrupt_tune(arguments)
        return
    if "run" not in arguments or "--once" in arguments:
        result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert result.exit_code == 0, f"{arguments}\n{result.output}"
        return
    tables = place / arguments[arguments.index("--tables") + 1]
    before = read_manifest(tables)
    run_until(arguments, lambda: read_manifest(tables) not in (None, before))
    assert read_manifest(tables) not in (None, before)


def run_until(arguments: list[str], holds: Callable[[], bool]) -> None:
    """Run a command that would go on without an end, and interrupt it once something holds."""

    def interrupt() -> None:
        try:
            until(holds)
        finally:
            signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident or 0
    watcher = threading.Thread(target=interrupt)
    watcher.start()
    result = CliRunner().invoke(cli, arguments)
    watcher.join()
    assert result.exit_code == INTERRUPTED, result.output


def interrupt_tune(arguments: list[str]) -> None:
    """Run ``tune`` as a process, and interrupt it when it has read the journal and waits for more of it."""
    command = [sys.executable, "-m", "fairlane", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        assert any("wait for a window of traffic" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        assert "No change is on trial" in process.stderr.read()
    assert process.returncode == NOTHING


def write_days(folder: Path) -> None:
    """Write the tables of eight days of mails, as the pipeline makes them: a forecast needs days of history."""
    RecordedDays(lambda _day, _hour: {"acme": 30, "beta": 20}, days=8, service_ms=500, queue="mail").write(folder)


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_the_spark_commands_of_a_page_run_as_written(
    page: str, spark: SparkSession, server: ServerProcess, place: Path
) -> None:
    """In the order of the page, each command succeeds, and afterwards Spark is still there for others."""
    write_orders(spark, place)
    if any(" forecast " in line for line in PAGES[page]):
        write_days(place / "tables")
    elif not any(" run " in line for line in PAGES[page]):  # the page is about tables that exist
        run(["pipeline", "run", "--journal", "journal", "--tables", "tables", "--once"], place)
    for line in PAGES[page]:
        with Client(address(server)) as client:
            client.enqueue("mail", b"news", fairness_key="acme")
        arguments = [SERVER.sub(address(server), word) for word in words(line, place)]
        run(arguments, place)
    assert spark.range(3).count() == 3


def test_the_backfill_of_the_guide_enqueues_what_it_selects(
    spark: SparkSession, server: ServerProcess, place: Path
) -> None:
    """The two orders from March on are in the queue once each, with their tenant, however often it is run."""
    write_orders(spark, place)
    (line,) = [line for line in PAGES["docs/guides/bulk.md"] if "backfill" in line]
    for _ in range(2):
        run(words(line, place), place)
    with Client(address(server)) as client:
        found = [(view.fairness_key, view.payload) for view in client.peek("orders", 10, with_body=True)]
    assert sorted(json.loads(payload or b"")["number"] for _, payload in found) == [2, 3]
    assert {key for key, _ in found} == {"acme"}


def test_the_redrive_of_the_guide_moves_what_it_selects(
    spark: SparkSession, server: ServerProcess, place: Path
) -> None:
    """Of three dead letters the two with a total above 100 are back in the queue."""
    assert spark is not None  # the command takes the session that is there
    for line in PAGES["docs/guides/bulk.md"]:
        if "redrive" in line:
            run(words(line, place), place)
    with Client(address(server)) as client:
        totals = [json.loads(view.payload or b"")["total"] for view in client.peek("orders", 10, with_body=True)]
    assert sorted(totals) == [150, 250]


def test_the_pages_show_commands_for_spark() -> None:
    """Each command and the guides about them are among what is found, so that this tests something."""
    guides = {f"docs/guides/{name}.md" for name in ("pipeline", "bulk", "what-if", "dashboard", "tune", "forecast")}
    assert guides <= PAGES.keys()
    shown = "\n".join(line for lines in PAGES.values() for line in lines)
    assert [name for name in COMMANDS if f" {name} " not in shown] == []
    assert sum(map(len, PAGES.values())) >= 12
