"""Test Fairlane on every Python version that it supports and this machine has.

``--smoke`` builds the wheel and the source distribution, which must give the same wheel. It installs the wheel into a
fresh environment per interpreter, and runs one message through a broker and the command line. Without it, each
interpreter runs the unit, property and contract tests on the checkout.
The supported versions are the classifiers of pyproject.toml. Versions without an interpreter are reported as skipped.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[1]
SUITES = ("tests/unit", "tests/property", "tests/contract")
SMOKE = """
import sys, tempfile
import fairlane
for name in fairlane.__all__:
    getattr(fairlane, name)
with tempfile.TemporaryDirectory() as folder:
    with fairlane.open_broker(folder) as broker:
        broker.create_queue("orders")
        broker.enqueue("orders", b"hello", fairness_key="acme")
    with fairlane.open_broker(folder) as broker:  # the message survives
        [delivery] = broker.lease("orders", 1)
        assert (delivery.payload, delivery.fairness_key) == (b"hello", "acme"), delivery
        broker.ack(delivery)
import plotly  # the dashboard of [server] draws charts
with fairlane.Client.embedded() as client:
    client.create_queue("orders")
    client.enqueue("orders", b"hello")
    [message] = client.lease("orders", 1)
    message.ack()
"""


def supported() -> list[str]:
    """Return the versions that the classifiers name, such as ``3.11``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in project["classifiers"])
    return [match[1] for match in found if match]


def candidates(version: str) -> Iterator[Path]:
    """Yield where an interpreter of a version may be: on the path, or installed by pyenv or uv."""
    found = shutil.which(f"python{version}")
    if found is not None:
        yield Path(found)
    homes = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    homes.append(Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python")))
    for home in homes:
        yield from sorted(home.glob(f"*/bin/python{version}"), reverse=True)


def interpreter(version: str) -> Path | None:
    """Return an interpreter of a version that runs, or None."""
    for path in candidates(version):
        code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return path
    return None


def run(*command: str | Path) -> None:
    """Run a command in the checkout, and stop everything if it fails."""
    subprocess.run(command, check=True, cwd=ROOT)


def install(python: Path, folder: Path, *installations: tuple[str, ...]) -> Path:
    """Create an environment in a folder, run ``pip install`` there for each installation, return its interpreter."""
    inside = folder / "bin" / "python"
    if not inside.exists():
        run(python, "-m", "venv", folder)
    for arguments in installations:
        run(inside, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *arguments)
    return inside


def build(folder: Path) -> Path:
    """Build the wheel from the source distribution, and return it; stop if the checkout gives another one."""
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder))
    [source] = folder.glob("*.tar.gz")
    contents: list[dict[str, int]] = []
    for name, place in (("checkout", "."), ("source", str(source))):
        pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps")
        run(*pip, "--no-build-isolation", "--wheel-dir", str(folder / name), place)
        [wheel] = (folder / name).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            contents.append({entry.filename: entry.CRC for entry in archive.infolist()})
    if differing := sorted(name for name, _ in contents[0].items() ^ contents[1].items()):
        raise SystemExit(f"The wheels of the checkout and of {source.name} differ in: {', '.join(differing)}")
    print(f"sdist: {source.name}, {source.stat().st_size / 1024:.0f} KiB, builds the same wheel")
    return wheel


def smoke(pythons: dict[str, Path]) -> None:
    """Build the distributions and try the wheel on each interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = build(Path(folder))
        print(f"wheel: {wheel.name}, {wheel.stat().st_size / 1024:.0f} KiB")
        versions = Path(folder) / "versions.txt"  # without hashes: pip then takes the wheel, which has none
        locked = re.findall(r"^\w[^\\\n]+", (ROOT / "lock.txt").read_text(), re.MULTILINE)
        versions.write_text("".join(f"{line}\n" for line in locked))
        for version, python in pythons.items():
            began = monotonic()
            inside = install(python, Path(folder) / version, ("--constraint", str(versions), f"{wheel}[server]"))
            run(inside, "-I", "-W", "error", "-c", SMOKE)
            run(inside.with_name("fairlane"), "--version")
            print(f"Python {version}: wheel installed, imported and used in {monotonic() - began:.0f} s", flush=True)


def suites(pythons: dict[str, Path]) -> None:
    """Run the in-process tests on each interpreter, in environments that are kept for the next time."""
    for version, python in pythons.items():
        began = monotonic()
        inside = install(
            python,
            ROOT / f".venv-{version}",
            ("--no-deps", "--require-hashes", "--requirement", "lock.txt"),
            ("--no-deps", "--no-build-isolation", "--editable", "."),
        )
        run(inside, "-m", "pytest", "-q", "-m", "not long", "--numprocesses", "2", "--dist", "loadfile", *SUITES)
        print(f"Python {version}: passed in {monotonic() - began:.0f} s", flush=True)


def main() -> int:
    """Find the interpreters, test on each, and say which versions were not tested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="only install the built wheel and use it once")
    asked = parser.parse_args()
    found = {version: interpreter(version) for version in supported()}
    pythons = {version: path for version, path in found.items() if path is not None}
    (smoke if asked.smoke else suites)(pythons)
    print(f"Tested on Python {', '.join(pythons)}.")
    for version in found.keys() - pythons.keys():
        print(f"!!! SKIPPED Python {version}: no interpreter found on PATH, in pyenv or in uv. It is NOT tested. !!!")
    return 0


if __name__ == "__main__":
    sys.exit(main())
