"""The command ``fairlane`` as a main file for ``spark-submit``.

    spark-submit --master yarn "$(python -m pyspark_fairlane.submit)" pipeline run --journal ... --tables ... --once

Without arguments it prints its own path, which is what ``spark-submit`` wants. The session is the one that was
submitted: its master, its memory and its settings.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fairlane.cli.main import main

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.stdout.write(f"{Path(__file__).resolve()}\n")
    else:
        main()
