"""Draw the state tables of the code in the docs.

Each diagram stands between two comments, ``<!-- states: NAME -->`` and ``<!-- end of states -->``. With ``--check`` it
only tells whether the pages agree with the tables.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from fairlane.broker.engine.state import diagram as engine_diagram
from fairlane.cluster.reconcile import diagram as group_diagram

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (DOCS / "architecture.md", DOCS / "operating" / "cluster.md")
DIAGRAMS = {"engine": engine_diagram, "group": group_diagram}
_BLOCK = re.compile(r"(<!-- states: (\w+) -->\n).*?(\n<!-- end of states -->)", re.DOTALL)


def drawn(text: str) -> str:
    """Return a page with its diagrams as the tables have them."""

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}```mermaid\n{DIAGRAMS[match[2]]()}\n```{match[3]}"

    return _BLOCK.sub(block, text)


def main() -> int:
    """Write the pages, or check them."""
    old = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        expected = drawn(text)
        if "--check" not in sys.argv:
            page.write_text(expected, encoding="utf-8")
        elif text != expected:
            old.append(page.name)
    if old:
        print(f"{', '.join(old)}: the state diagrams are out of date; run python tools/draw_states.py.")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
