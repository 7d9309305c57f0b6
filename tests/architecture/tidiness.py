"""Count what should shrink: long files and functions, words with two meanings, sleeping tests, unclear prose.

``tests/architecture/test_tidiness.py`` fails when a count exceeds the one recorded in ``tidiness.json``.
``python -m tests.architecture.tidiness`` prints the counts, ``--lower`` records those that have shrunk, and
``--show NAME`` lists where a count comes from. There is no way to record a greater count but to edit the file.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).with_name("tidiness.json")
FILE_LINES = 400
FUNCTION_LINES = 25
PACKAGE_FILES = 25
OPENINGS = re.compile(r"(Let|Tell|Have|Say)\b")
WORDS = re.compile(
    r"\b(whoever|nobody|somebody|anew|of late|so many|so long|by and by|what there is|what is asked)\b", re.IGNORECASE
)
EXCEPTIONS = re.compile(r"#\s*(noqa|type:\s*ignore)")
VIRTUAL = "# virtual"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def sources(folder: str = "src") -> list[Path]:
    """Return the Python files of a folder that are written by hand."""
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if "_pb2" not in path.name]


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text())


def pages() -> list[Path]:
    """Return the documentation, except the glossary and the code of generated pages."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def at(path: Path, line: int, what: str = "") -> str:
    """Return a finding as ``path:line what``."""
    return f"{path.relative_to(ROOT)}:{line} {what}".rstrip()


def long_files() -> Iterator[str]:
    """Find source files that are too long to be about one topic."""
    for path in sources():
        if (count := len(path.read_text().splitlines())) > FILE_LINES:
            yield at(path, 1, f"{count} lines")


def long_functions() -> Iterator[str]:
    """Find functions whose bodies, without the docstring, are too long to be read at a glance."""
    for path in sources():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, Function):
                first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
                if (count := (node.end_lineno or 0) - first.lineno + 1) > FUNCTION_LINES:
                    yield at(path, node.lineno, f"{node.name}: {count} lines")


def shared_class_names() -> Iterator[str]:
    """Find public class names that several modules define."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sources():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(at(path, node.lineno))
    yield from (f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1)


def large_packages() -> Iterator[str]:
    """Find packages with too many modules to be taken in at once."""
    counts = Counter(path.parent for path in sources() if path.name != "__init__.py")
    yield from (at(folder, 0, f"{count} modules") for folder, count in sorted(counts.items()) if count > PACKAGE_FILES)


def sleeps() -> Iterator[str]:
    """Find tests that sleep in real time instead of waiting for a condition."""
    for path in sources("tests"):
        if path == ROOT / "tests/kit/waiting.py":
            continue
        lines = path.read_text().splitlines()
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and _is_sleep(node) and VIRTUAL not in lines[node.lineno - 1]:
                yield at(path, node.lineno)


def _is_sleep(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    passes = node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
    return name == "sleep" and not passes


def docstring_openings() -> Iterator[str]:
    """Find docstrings that open with a causative instead of the verb for what happens."""
    for path in [*sources(), *sources("tests/kit"), *sources("tools")]:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Module | ast.ClassDef | Function):
                text = ast.get_docstring(node) or ""
                if OPENINGS.match(text):
                    yield at(path, getattr(node, "lineno", 1), text.splitlines()[0])


def unclear_words() -> Iterator[str]:
    """Find words that hide who acts, in sources and documentation."""
    for path in [*sources(), *pages()]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield from (at(path, number, word) for word in WORDS.findall(line))


def lint_exceptions() -> Iterator[str]:
    """Find lines that are exempt from a lint rule or a type check."""
    for path in sources():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if EXCEPTIONS.search(line):
                yield at(path, number)


FINDERS: dict[str, Callable[[], Iterator[str]]] = {
    "docstring_openings": docstring_openings,
    "large_packages": large_packages,
    "lint_exceptions": lint_exceptions,
    "long_files": long_files,
    "long_functions": long_functions,
    "shared_class_names": shared_class_names,
    "sleeps": sleeps,
    "unclear_words": unclear_words,
}


def counts() -> dict[str, int]:
    """Return how much of each kind there is."""
    return {name: sum(1 for _ in find()) for name, find in FINDERS.items()}


def recorded() -> dict[str, int]:
    """Return the counts that may not be exceeded."""
    values: dict[str, int] = json.loads(RECORDED.read_text())
    return values


def main() -> int:
    """Print, list or lower the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.architecture.tidiness", description=__doc__)
    parser.add_argument("--lower", action="store_true", help="record the counts that have shrunk")
    parser.add_argument("--show", choices=FINDERS, metavar="NAME", help="list where a count comes from")
    asked = parser.parse_args()
    if asked.show is not None:
        sys.stdout.writelines(f"{finding}\n" for finding in FINDERS[asked.show]())
        return 0
    now, limits = counts(), recorded()
    if asked.lower:
        limits = {name: min(count, limits.get(name, count)) for name, count in now.items()}
        RECORDED.write_text(json.dumps(limits, indent=2) + "\n")
    sys.stdout.writelines(f"{name:20} {count:5}  (recorded {limits.get(name)})\n" for name, count in now.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
