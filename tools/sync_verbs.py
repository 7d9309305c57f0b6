"""Makes what the broker and the client have for threads from what they have for asyncio.

With ``--check`` it only says whether they agree.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "fairlane"
ROOMS = {
    SOURCE / "broker" / "verbs": ("asking", "messages", "batches", "admin"),
    SOURCE / "client": ("asking", "messages", "message", "batches", "admin"),
}
CHANGES = [
    (r"for asyncio\. (That|Those) for threads (is|are) made from this file by", "for threads. Made from its twin by"),
    (r"\bAsync(Asking|MessageVerbs|BatchVerbs|AdminVerbs|Message|Settling)\b", r"\1"),
    (r"\b(asking|message)_aio\b", r"\1"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\basync def\b", "def"),
    (r"\bawait ", ""),
]


def sync_verbs(twin: Path, target: Path) -> str:
    """Return a file for threads."""
    text = twin.read_text(encoding="utf-8")
    for pattern, replacement in CHANGES:
        text = re.sub(pattern, replacement, text)
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(target), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, check=True, text=True).stdout


def main() -> int:
    """Write them, or check them."""
    for room, names in ROOMS.items():
        for name in names:
            twin, target = room / f"{name}_aio.py", room / f"{name}.py"
            made = sync_verbs(twin, target)
            if "--check" not in sys.argv:
                target.write_text(made, encoding="utf-8")
            elif target.read_text(encoding="utf-8") != made:
                print(f"{target} is not what its twin makes: run tools/sync_verbs.py.")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
