"""Draw the state tables of the code in docs/architecture.md.

Each diagram stands between two comments, ``<!-- states: NAME -->`` and ``<!-- end of states -->``. With ``--check`` it
only tells whether the page agrees with the tables.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from fairlane.broker.engine.state import diagram

PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
DIAGRAMS = {"engine": diagram}
_BLOCK = re.compile(r"(<!-- states: (\w+) -->\n).*?(\n<!-- end of states -->)", re.DOTALL)


def drawn(text: str) -> str:
    """Return a page with its diagrams as the tables have them."""

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}```mermaid\n{DIAGRAMS[match[2]]()}\n```{match[3]}"

    return _BLOCK.sub(block, text)


def main() -> int:
    """Write the page, or check it."""
    text = PAGE.read_text(encoding="utf-8")
    expected = drawn(text)
    if "--check" not in sys.argv:
        PAGE.write_text(expected, encoding="utf-8")
        return 0
    if text != expected:
        print(f"{PAGE.name} does not show the state tables as they are: run python tools/draw_states.py.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
