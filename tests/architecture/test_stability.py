"""The stability page states the format versions that the code writes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import fairlane
from fairlane.chargeback import statements
from fairlane.journal import codec, schema
from fairlane.spark.pipeline import manifest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "stability.md").read_text()


def test_the_page_names_the_format_versions() -> None:
    """The table of formats has the versions of the journal, the events, the manifest and the statements."""
    assert f"| journal page (all stores) | {codec.VERSION} |" in PAGE
    assert f"| events (Arrow, Parquet) | {schema.EVENTS_VERSION} |" in PAGE
    assert f"| table manifest of the pipeline | {manifest.VERSION} |" in PAGE
    assert f"| statements of chargeback | {statements.VERSION} |" in PAGE


def test_the_page_names_the_version_and_the_supported_pythons() -> None:
    """The page says which version this is, and which Python versions the classifiers name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    *others, last = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert f"The current version is {fairlane.__version__} " in PAGE
    assert f"the list: {', '.join(others)} and {last}." in PAGE
