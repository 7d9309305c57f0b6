"""Record the names that docs/stability.md makes public: ``python -m tests.kit.public_names``.

A test compares the record with the code. A name may be added at any time. One that is gone, or a metric that has
another type or other labels, fails the test: a released name is deprecated first. Until the first release, record it
again.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
RECORD: Final = ROOT / "tests" / "golden" / "public-names.json"
MODULES: Final = ("client", "worker", "assembly", "scheduler", "asgi", "spark")
_ROW: Final = re.compile(r"^\| `((?:fairlane|process)_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


def python_names() -> dict[str, list[str]]:
    """Return the public names of each public module."""
    modules = ("fairlane", *(f"fairlane.{name}" for name in MODULES))
    return {name: sorted(importlib.import_module(name).__all__) for name in modules}


def metrics() -> dict[str, list[str]]:
    """Return the metrics in the reference, which a test compares with a server: the type of each, and its labels."""
    rows = _ROW.findall((ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8"))
    return {name: [kind, *sorted(re.findall(r"`(\w+)`", labels))] for name, kind, labels in rows}


def main() -> None:
    """Write the record."""
    RECORD.write_text(json.dumps({"python": python_names(), "metrics": metrics()}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
