"""Makes the broker's verbs for threads from those for asyncio. With ``--check`` it only says whether they agree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BROKER = Path(__file__).parent.parent / "src" / "fairlead" / "broker"
SOURCE, TARGET = BROKER / "verbs_aio.py", BROKER / "verbs.py"
CHANGES = [
    (
        r'\A"""Every verb of the broker, for asyncio.*?\n',
        '"""Every verb of the broker, for threads. Made from ``verbs_aio`` by ``tools/sync_verbs.py``: change that.\n',
    ),
    (r"\bAsyncVerbs\b", "Verbs"),
    (r"\basync def\b", "def"),
    (r"\bawait ", ""),
]


def sync_verbs() -> str:
    """Return the verbs for threads."""
    text = SOURCE.read_text(encoding="utf-8")
    for pattern, replacement in CHANGES:
        text = re.sub(pattern, replacement, text)
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, check=True, text=True).stdout  # noqa: S603 - our own


def main() -> int:
    """Write them, or check them."""
    made = sync_verbs()
    if "--check" in sys.argv:
        return 0 if TARGET.read_text(encoding="utf-8") == made else 1
    TARGET.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
