"""Makes the client's verbs for threads from those for asyncio, in the way of ``tools/sync_verbs.py``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parents[3] / "src" / "fairlead" / "client"
NAMES = ("asking", "messages", "message", "admin")
CHANGES = [
    (
        r"for asyncio\. (That|Those) for threads (is|are) made from this file by",
        r"for threads. Made from that for asyncio by",
    ),
    (r"\bAsync(Asking|MessageVerbs|AdminVerbs|Message|Settling)\b", r"\1"),
    (r"\b(asking|message)_aio\b", r"\1"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\basync def\b", "def"),
    (r"\bawait ", ""),
]


def sync_verbs(name: str) -> str:
    """Return a file of the client for threads."""
    text = (CLIENT / f"{name}_aio.py").read_text(encoding="utf-8")
    for pattern, replacement in CHANGES:
        text = re.sub(pattern, replacement, text)
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(CLIENT / f"{name}.py"), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, check=True, text=True).stdout


if __name__ == "__main__":
    for each in NAMES:
        (CLIENT / f"{each}.py").write_text(sync_verbs(each), encoding="utf-8")
