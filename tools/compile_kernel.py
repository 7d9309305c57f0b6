"""Compile the scheduler's kernel and the player of what-if with mypyc.

``FAIRLANE_COMPILE=1 pip install .`` installs Fairlane with a compiled kernel; this file is the build hook that does it.
``python tools/compile_kernel.py FOLDER`` copies the package into a folder and compiles it there, for a trial with
``PYTHONPATH``. Both need a C compiler and the headers of Python. The modules stay ordinary Python: what is installed
without the variable is the same code, interpreted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parents[1]
REQUIRED = ["mypy[mypyc]>=2.4,<3", "setuptools>=77"]
SCHEDULER = (
    *("admission", "buckets", "explanation", "gates", "item", "kernel", "key_limits", "keys", "lanes", "order"),
    *("parking", "portions", "survey", "timers", "token_bucket", "tree", "turns"),
)
WHATIF = ("fleet", "queues", "simulation")
MODULES = [f"fairlane/scheduler/{name}.py" for name in SCHEDULER] + [f"fairlane/spark/whatif/{n}.py" for n in WHATIF]
CONFIG = "[mypy]\nstrict = true\nfollow_imports = silent\nignore_missing_imports = true\n"
SETUP = """
from mypyc.build import mypycify
from setuptools import setup
extensions = mypycify(["--config-file", "mypy.ini", *{modules!r}], opt_level="{level}", debug_level="0",
                      group_name="fairlane_kernel")
setup(name="fairlane-kernel", packages=[], ext_modules=extensions)
"""


class CompiledKernelHook(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel if ``FAIRLANE_COMPILE`` is 1."""

    def dependencies(self) -> list[str]:
        """Return what the build needs besides Hatchling."""
        return REQUIRED if _is_wanted() and self.target_name == "wheel" else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and have the modules included. An editable installation stays plain, or edits would do nothing."""
        if not _is_wanted() or self.target_name != "wheel" or version == "editable":
            return
        self._folder = Path(tempfile.mkdtemp(prefix="fairlane-kernel-"))
        for path in compile_into(self._folder):
            build_data["force_include"][str(path)] = str(path.relative_to(self._folder))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        """Remove the folder in which the kernel was compiled."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            shutil.rmtree(folder)


def compile_into(folder: Path, *, level: int = 3) -> list[Path]:
    """Copy the package into a folder, compile its kernel there, and return the compiled modules."""
    shutil.copytree(ROOT / "src/fairlane", folder / "fairlane", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (folder / "mypy.ini").write_text(CONFIG)
    (folder / "setup.py").write_text(SETUP.format(modules=MODULES, level=level))
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=folder, check=False, text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(f"The kernel could not be compiled:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return [path for path in sorted(folder.rglob("*.so")) if "build" not in path.relative_to(folder).parts]


def _is_wanted() -> bool:
    return os.environ.get("FAIRLANE_COMPILE", "") == "1"


def main() -> None:
    """Compile into the folder that is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="an empty or new folder")
    parser.add_argument("--level", type=int, choices=range(4), default=3, help="optimization of the C compiler")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    compiled = compile_into(asked.folder, level=asked.level)
    print(f"Compiled {len(compiled)} modules. Use them with PYTHONPATH={asked.folder}")


if __name__ == "__main__":
    main()
