"""The lock file: what ``make setup`` installs agrees with pyproject.toml, and every file has a hash."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LINE_NAME = re.compile(r"^(\w\S*)==", re.MULTILINE)
LINE = re.compile(
    r"([A-Za-z0-9._-]+)==(\S+)(?: ; [^\\]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n    # via [^\n]+\n"
)


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


def test_the_part_of_the_lock_file_for_an_extra_is_complete_and_small() -> None:
    """What an extra needs, by the metadata of the installed packages, is in its part; Spark is not in the server's."""
    for extra in ("server", "report", "spark"):
        assert needed(f"fairlane[{extra}]") - {"fairlane"} <= set(LINE_NAME.findall(part(extra)))
    assert {"pyspark", "pyarrow", "pytest", "mypy"}.isdisjoint(LINE_NAME.findall(part("server")))


def test_no_line_of_the_lock_file_is_lost_in_its_parts() -> None:
    """All entries together are the lock file, without its first lines."""
    assert part() == re.sub(r"(?m)^#.*\n", "", (ROOT / "lock.txt").read_text())


def part(*extras: str) -> str:
    """Return the part of the lock file that extras need, or everything."""
    command = [sys.executable, "tools/install_locked.py", "--list", *extras]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def needed(text: str) -> set[str]:
    """Return what a requirement needs in this environment, with itself, by the metadata of what is installed."""
    found: set[str] = set()
    open_ends, seen = [Requirement(text)], set[str]()
    while open_ends:
        requirement = open_ends.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        found.add(canonicalize_name(requirement.name))
        extras = requirement.extras or {""}
        inner = map(Requirement, metadata.requires(requirement.name) or ())
        open_ends += [
            each
            for each in inner
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras)
        ]
    return found
