"""The bill of materials: ``make sbom``, with what it downloads, in a folder of its own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.architecture.test_lock import LINE, ROOT


def made(folder: Path) -> bytes:
    """Return the bill of materials that the lock file of the project leads to."""
    variables = (f"PYTHON={sys.executable}", f"VENV={folder / 'venv'}")
    subprocess.run(["make", "--silent", "sbom", *variables], cwd=folder, check=True, capture_output=True)
    return (folder / "sbom.cdx.json").read_bytes()


def test_the_bill_of_materials_is_the_lock_file(tmp_path: Path) -> None:
    """It lists every locked version once, with all its hashes, and nothing else; made again, it is the same file."""
    for name in ("Makefile", "lock.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    first = made(tmp_path)
    assert made(tmp_path) == first
    bill = json.loads(first)
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "fairlane")
    listed = [
        (
            each["purl"],
            sorted(found["content"] for reference in each["externalReferences"] for found in reference["hashes"]),
        )
        for each in bill["components"]
    ]
    locked = [
        (f"pkg:pypi/{name.lower()}@{version}", sorted(re.findall(r"sha256:([0-9a-f]{64})", hashes)))
        for name, version, hashes in LINE.findall((ROOT / "lock.txt").read_text())
    ]
    assert sorted(listed) == sorted(locked)
    assert len(locked) > 100
