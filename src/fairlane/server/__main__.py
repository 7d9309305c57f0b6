"""A server process without the command line: ``python -m fairlane.server [--name value ...]``.

``fairlane serve`` has flags for the settings that people type; here every setting is a flag, for process managers and
tests.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from fairlane.errors import FairlaneError
from fairlane.platforms import posix_fault
from fairlane.server.run import serve
from fairlane.server.settings import NAMES, load


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal arrives; return the exit code."""
    if (fault := posix_fault("fairlane.server")) is not None:
        sys.stderr.write(f"fairlane: {fault}\n")
        return 1
    parser = argparse.ArgumentParser(prog="python -m fairlane.server", description="Run a Fairlane server.")
    parser.add_argument("--config", help="a TOML file with settings")
    for name in NAMES:
        parser.add_argument("--" + name.replace("_", "-"), dest=name, default=None)
    flags = vars(parser.parse_args(arguments))
    file = flags.pop("config")
    try:
        serve(load(Path(file).read_text() if file else None, os.environ, flags))
    except (FairlaneError, OSError) as error:
        sys.stderr.write(f"fairlane: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
