"""Make the methods for threads from those for asyncio.

With ``--check`` it only reports whether they agree.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "fairlane"
MODULES = {
    SOURCE / "verbs" / "methods": (
        *("base", "messages", "uploads", "status", "batches", "admin", "schedules", "templates", "complete"),
    ),
    SOURCE / "client": ("message",),
}
CHANGES = [
    (
        r"for asyncio\. (That|Those) for threads (is|are) made from this file by",
        "for threads. Generated from its twin by",
    ),
    (
        r"\bAsync((All|Message|Upload|Status|Batch|Admin|Schedule|Template)?Verbs|Message|Settling|PayloadReader)\b",
        r"\1",
    ),
    (r"\b(base|message|messages|uploads|status|batches|admin|schedules|templates|payload_reader)_aio\b", r"\1"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\basync def\b", "def"),
    (r"\bawait ", ""),
]


def sync_verbs(twin: Path, target: Path) -> str:
    """Return the text of a module for threads."""
    text = twin.read_text(encoding="utf-8")
    for pattern, replacement in CHANGES:
        text = re.sub(pattern, replacement, text)
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(target), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, check=True, text=True).stdout


def main() -> int:
    """Write the modules, or check them."""
    for folder, names in MODULES.items():
        for name in names:
            twin, target = folder / f"{name}_aio.py", folder / f"{name}.py"
            made = sync_verbs(twin, target)
            if "--check" not in sys.argv:
                target.write_text(made, encoding="utf-8")
            elif target.read_text(encoding="utf-8") != made:
                print(f"{target} differs from what its twin generates; run tools/sync_verbs.py.")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
