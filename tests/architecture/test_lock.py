"""The lock file: what ``make setup`` installs agrees with pyproject.toml, and every file has a hash."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"([A-Za-z0-9._-]+)==(\S+)(?: ; [^\\]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def locked() -> dict[str, str]:
    """Return the locked versions by name. Every line belongs to a version with at least one hash."""
    lines = [line for line in (ROOT / "lock.txt").read_text().splitlines(keepends=True) if not line.startswith("#")]
    text = "".join(lines)
    assert LINE.sub("", text) == ""
    return {canonicalize_name(name): version for name, version, _ in LINE.findall(text)}


def required() -> Iterator[Requirement]:
    """Yield what the project, its extras and its build backend require."""
    parsed = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = parsed["project"]
    groups = [project["dependencies"], parsed["build-system"]["requires"], *project["optional-dependencies"].values()]
    for group in groups:
        yield from (Requirement(text) for text in group)


def test_the_lock_file_meets_every_requirement() -> None:
    """Each requirement is locked at a version that it allows; otherwise run make lock."""
    versions = locked()
    unmet = [
        str(requirement)
        for requirement in required()
        if requirement.name != "fairlane"
        and not requirement.specifier.contains(versions.get(canonicalize_name(requirement.name), "0"), prereleases=True)
    ]
    assert unmet == []


def test_the_lock_file_names_no_registry() -> None:
    """The file works with any index: it has names, versions, markers and hashes."""
    assert "://" not in (ROOT / "lock.txt").read_text()
