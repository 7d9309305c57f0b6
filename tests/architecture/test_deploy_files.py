"""The files to deploy with name only settings, files and options that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from fairlane.server.settings import ENVIRONMENT_PREFIX, NAMES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())
UNIT = DEPLOY / "systemd" / "fairlane.service"
FILES = [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_setting_exists(path: Path) -> None:
    """Each variable of a server that a file sets is the name of a setting."""
    known = {f"{ENVIRONMENT_PREFIX}{name.upper()}" for name in NAMES}
    assert set(re.findall(r"\bFAIRLANE_[A-Z_]+\b", path.read_text())) <= known


def test_compose_mounts_files_that_exist() -> None:
    """Each path on the left of a mount, and the image's build file, is a file or folder of the project."""
    folder = DEPLOY / "container"
    mounts = [mount.split(":")[0] for service in COMPOSE["services"].values() for mount in service.get("volumes", ())]
    assert [mount for mount in mounts if mount.startswith(".") and not (folder / mount).exists()] == []
    build = COMPOSE["services"]["fairlane"]["build"]
    assert ((folder / build["context"]).resolve() / build["dockerfile"]).exists()


def test_named_volumes_are_declared() -> None:
    """Each volume that a service mounts by name is declared."""
    mounts = [mount.split(":")[0] for service in COMPOSE["services"].values() for mount in service.get("volumes", ())]
    assert {mount for mount in mounts if not mount.startswith(".")} == set(COMPOSE["volumes"])


def test_the_image_copies_files_that_exist() -> None:
    """What the image copies from the project exists, and is not ignored."""
    copies = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "container" / "Containerfile").read_text(), re.MULTILINE
    )
    names = {name for line in copies for name in line.split()}
    ignored = (DEPLOY / "container" / "Containerfile.dockerignore").read_text().split()
    assert names == {line[1:] for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in names)


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """systemd finds nothing wrong with the unit, apart from the program, which is not installed there."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed; on Debian: apt-get install systemd.")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/fairlane/bin/fairlane", "/bin/true"))
    answer = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
