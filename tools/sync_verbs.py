"""Makes the broker's verbs for threads from those for asyncio. With ``--check`` it only says whether they agree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

VERBS = Path(__file__).parent.parent / "src" / "fairlead" / "broker" / "verbs"
NAMES = ("asking", "messages", "admin")
CHANGES = [
    (
        r"for asyncio\. (That|Those) for threads (is|are) made from this file by",
        r"for threads. Made from the asyncio ones by",
    ),
    (r"\bAsync(Asking|MessageVerbs|AdminVerbs)\b", r"\1"),
    (r"\basking_aio\b", "asking"),
    (r"\basync def\b", "def"),
    (r"\bawait ", ""),
]


def sync_verbs(name: str) -> str:
    """Return a file of verbs for threads."""
    text = (VERBS / f"{name}_aio.py").read_text(encoding="utf-8")
    for pattern, replacement in CHANGES:
        text = re.sub(pattern, replacement, text)
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(VERBS / f"{name}.py"), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, check=True, text=True).stdout  # noqa: S603 - our own


def main() -> int:
    """Write them, or check them."""
    for name in NAMES:
        target, made = VERBS / f"{name}.py", sync_verbs(name)
        if "--check" not in sys.argv:
            target.write_text(made, encoding="utf-8")
        elif target.read_text(encoding="utf-8") != made:
            print(f"{target.name} is not what {name}_aio.py makes: run tools/sync_verbs.py.")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
