"""A server whose clock is wrong: ``python skewed_server.py MILLISECONDS [--name value ...]``.

Signals set it while it runs; ``wrong_clock`` has them.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from fairlane.server.__main__ import main
from tests.system.wrong_clock import skew

if __name__ == "__main__":
    skew(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
