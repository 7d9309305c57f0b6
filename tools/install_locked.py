"""Install what extras of Fairlane need from lock.txt, with hashes, into the environment that runs this.

``lock.txt`` names for each package the packages that require it (``# via``). From these and the extras in
``pyproject.toml`` follows which part of the lock file an extra needs, without a second lock file. Without extras,
everything in the lock file is installed. ``--steps`` prints one line for each package and each file that is downloaded,
with its bytes, instead of nothing; ``--list`` prints the part of the lock file and installs nothing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROJECT = "fairlane"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
EXTRAS = re.compile(r"\[([^\]]*)\]")
ENTRY = re.compile(r"^(\w\S*)==.*?\n    # via (.*?)\n", re.MULTILINE | re.DOTALL)
DOWNLOAD = re.compile(r"\s+Downloading (?:\S*/)?(\S+) \(([\d.]+) (bytes|[kMG]B)\)")
UNITS = {"bytes": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
STEP = re.compile(r"(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9._-]+)")


@dataclass(frozen=True, slots=True)
class Entry:
    """A locked version: its lines, and the packages that require it."""

    text: str
    requirers: frozenset[str]


def canonical(name: str) -> str:
    """Return a package's name as the lock file spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(lock: str) -> dict[str, Entry]:
    """Return the entries of a lock file by name. A package with a version for each of several Pythons has one entry."""
    made: dict[str, Entry] = {}
    for found in ENTRY.finditer(lock):
        before = made.get(found[1], Entry("", frozenset()))
        made[found[1]] = Entry(before.text + found[0], before.requirers | set(found[2].split(", ")))
    return made


def requirements(project: Mapping[str, Any], extras: Iterable[str]) -> Iterator[str]:
    """Yield the names of the packages that the project requires with some extras."""
    optional = project["optional-dependencies"]
    for text in [*project["dependencies"], *(text for extra in extras for text in optional[extra])]:
        [name] = NAME.findall(text)[:1]
        if name != PROJECT:
            yield canonical(name)
        elif inner := EXTRAS.search(text):
            yield from requirements(project, inner[1].split(","))


def selected(locked: Mapping[str, Entry], wanted: Iterable[str]) -> list[str]:
    """Return the names of packages and of everything that they require, in the order of the lock file."""
    found, grown = set(wanted), True
    while grown:
        more = {name for name, entry in locked.items() if name not in found and entry.requirers & found}
        found, grown = found | more, bool(more)
    return [name for name in locked if name in found]


def install(lines: str, packages: int, *, steps: bool) -> int:
    """Install the lines of a lock file; return pip's exit code."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(lines)
        file.flush()
        # The lock file is complete. Without --no-deps, older versions of pip try the newest release of a package that
        # another one requires with an extra, and then refuse it because it is not the locked one.
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
        command += ["--no-deps", "--require-hashes", "--requirement", file.name]
        if not steps:
            # Twice quiet: pip prints a warning for every package that one of several indexes lacks.
            return subprocess.run([*command, "-qq"], check=False).returncode
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
            return follow(pip, packages)


def follow(pip: subprocess.Popen[str], packages: int) -> int:
    """Print a line for each step of pip, and its errors; return its exit code."""
    done = 0
    for line in pip.stdout or ():
        if found := STEP.match(line):
            done += 1
            print(f"package {done} of {packages}: {found[1]}", flush=True)
        elif found := DOWNLOAD.match(line):
            print(f"download {found[1]} {float(found[2]) * UNITS[found[3]]:.0f}", flush=True)
        elif line.startswith("Installing collected"):
            print("unpacking", flush=True)
        elif line.startswith("ERROR"):
            print(line, end="", file=sys.stderr)
    return pip.wait()


def main() -> int:
    """Install what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", help="extras of Fairlane; everything in the lock file if none is named")
    parser.add_argument("--steps", action="store_true", help="print a line for each package and download")
    parser.add_argument("--list", action="store_true", help="print the part of the lock file, install nothing")
    given = parser.parse_args()
    lock = (ROOT / "lock.txt").read_text()
    parsed = tomllib.loads((ROOT / "pyproject.toml").read_text())
    locked = entries(lock)
    build = (canonical(NAME.findall(text)[0]) for text in parsed["build-system"]["requires"])
    names = selected(locked, [*build, *requirements(parsed["project"], given.extras)]) if given.extras else list(locked)
    lines = "".join(locked[name].text for name in names)
    if given.list:
        print(lines, end="")
        return 0
    return install(lines, len(names), steps=given.steps)


if __name__ == "__main__":
    sys.exit(main())
