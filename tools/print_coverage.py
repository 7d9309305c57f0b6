"""Print how much of each package the in-process tests execute, from the .coverage file of the last run."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path, PurePath


def main() -> None:
    """Print one line per package, and the total."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        subprocess.run([sys.executable, "-m", "coverage", "json", "--quiet", "-o", str(report)], check=True)
        files = json.loads(report.read_text())["files"]
    covered: defaultdict[str, int] = defaultdict(int)
    lines: defaultdict[str, int] = defaultdict(int)
    for name, file in files.items():
        inside = PurePath(name).parts[PurePath(name).parts.index("fairlane") + 1 :]
        for package in (inside[0].removesuffix(".py") if len(inside) > 1 else "(top level)", "total"):
            covered[package] += file["summary"]["covered_lines"]
            lines[package] += file["summary"]["num_statements"]
    print("Coverage by in-process tests (unit, property, contract, architecture); others run without a tracer.")
    for package in sorted(lines, key=lambda name: (name == "total", name)):
        print(f"  {package:12} {lines[package]:6} statements  {100 * covered[package] / max(1, lines[package]):5.1f} %")


if __name__ == "__main__":
    main()
