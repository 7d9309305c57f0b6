"""Make docs/coming-from/statements.md from the tests in tests/statements.

A test ``test_017_…`` is about statement 17, and ``test_207_to_212_…`` about six of them. What the page says of a
statement is the docstring of its test, so the page can't say more than a test shows.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "statements"
PAGE = ROOT / "docs" / "coming-from" / "statements.md"
CHAPTERS = {
    1: "Fila: core concepts",
    74: "Fila: throttle-aware scheduling",
    104: "Fila: deficit round robin",
    131: "Firq",
    204: "The queue of lockd",
}
"""The documents that the statements are from, by the number of their first statement."""
LAST = 300
_NAME = re.compile(r"test_(\d{3})(?:_(?:to|and)_(\d{3}))?_")
_INTRODUCTION = """# Three hundred statements

Fila, Firq and the queue of lockd describe what they do in 300 statements. This page lists what Fairlane does about
each. Every row is the sentence of a test, which runs with each change; `python -m tests.kit.statements` makes the page.
"""


@dataclass(frozen=True, slots=True)
class Statement:
    """What Fairlane does about a statement, and the test that shows it."""

    number: int
    text: str
    test: str


def statements(folder: Path = TESTS) -> list[Statement]:
    """Return the statements of all tests in a folder, by number."""
    found = []
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            match = _NAME.match(node.name) if isinstance(node, ast.FunctionDef) else None
            if match is None or not isinstance(node, ast.FunctionDef):
                continue
            first, last = int(match[1]), int(match[2] or match[1])
            text = " ".join((ast.get_docstring(node) or "").split())
            found += [Statement(number, text, f"{path.stem}.py") for number in range(first, last + 1)]
    return sorted(found, key=lambda statement: statement.number)


def page(rows: list[Statement]) -> str:
    """Return the page for these statements."""
    lines = [_INTRODUCTION]
    for row in rows:
        if row.number in CHAPTERS and (chapter := f"## {CHAPTERS[row.number]}\n") not in lines:
            lines += ["", chapter, "| # | what Fairlane does | test |", "|--:|---|---|"]
        lines.append(f"| {row.number} | {row.text.replace('|', chr(92) + '|')} | `{row.test}` |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or with ``--check`` say whether it is current."""
    text = page(statements())
    if "--check" in sys.argv:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
