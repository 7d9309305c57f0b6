"""What the docs and the examples say is run as it stands."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairlane.errors import QueueFull
from tests.kit.java import lean_environment
from tests.kit.servers.stores import ServerMissing

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.timeout(600)  # a page may start Spark
EXAMPLES = [
    example
    for example in sorted((ROOT / "examples").glob("*.py"))
    if example.name not in ("noisy_neighbour.py", "embedded.py", "tune.py", "pipeline.py")  # demo.py runs these
]
MISSING = "error: This example needs PostgreSQL: "
CLUSTER = importlib.import_module("examples.cluster")  # mypy knows examples as files, not as modules of a package
LINK = re.compile(r"\]\(([^)#]+)\)")


def name_of(path: Path) -> str:
    """Return a path as the project calls it."""
    return str(path.relative_to(ROOT))


def run(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own and in a folder, with every warning as an error."""
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=folder, env=lean_environment()
    )


ELSEWHERE = {"docs/guides/outbox.md", "docs/quickstart.md"}
"""Pages that need servers, and have tests of their own beside this one."""
LONG = {page: [pytest.mark.long] for page in ("docs/guides/pipeline.md", "docs/guides/spark-sources.md")}
"""Pages that run Spark take minutes on a busy machine."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=LONG.get(name_of(page), []))
        for page in PAGES
        if BLOCK.search(page.read_text()) and name_of(page) not in ELSEWHERE
    ],
)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """The Python blocks of a page run in order, as a reader would type them in an empty folder."""
    result = run("-c", "\n".join(BLOCK.findall(page.read_text())), folder=tmp_path)
    assert result.returncode == 0, result.stderr


RECORDED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
{example}
spans = {{span.name: span.attributes for span in exporter.get_finished_spans()}}
assert spans["process mail"]["tenant"] == "acme", spans
"""


def test_the_span_of_a_job_has_the_attribute_that_the_guide_adds() -> None:
    """The OpenTelemetry example runs with an SDK, which records the span; without one there is none."""
    first, *others = BLOCK.findall((ROOT / "docs" / "guides" / "frameworks.md").read_text())
    [example] = [block for block in others if "opentelemetry" in block]
    result = run("-c", RECORDED.format(example=first + example))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Every link to a file of the project has a file behind it."""
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_an_example_runs(example: Path) -> None:
    """Every example ends by itself, says something, and complains of nothing."""
    result = run("-m", f"examples.{example.stem}") if example.stem == "cluster" else run(str(example))
    if result.stderr.startswith(MISSING):
        pytest.skip(result.stderr.removeprefix(MISSING).strip())
    assert result.returncode == 0, result.stderr
    assert result.stdout
    assert result.stderr == ""


def test_the_cluster_example_does_not_pass_without_postgresql(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has shown nothing then, and says what to install."""

    def missing() -> None:
        raise ServerMissing("PostgreSQL is not installed; on Debian: apt-get install postgresql.")

    monkeypatch.setattr(CLUSTER, "PostgresServer", missing)
    assert CLUSTER.main() == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        f"{MISSING}PostgreSQL is not installed; on Debian: apt-get install postgresql.\n",
    )


def test_the_cluster_example_counts_messages_that_were_refused() -> None:
    """A batch may be answered with an error for some of its messages."""
    work = CLUSTER.Work(None)
    work.note_sent("mail", ["1", QueueFull("The queue is full."), "2"])
    assert work.sent == {("mail", "1"), ("mail", "2")}
    assert work.errors == {"enqueue: queue_full": 1}
