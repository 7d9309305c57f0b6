"""A server whose event loop hangs on a signal while its threads go on: ``python hanging_server.py [--name value ...]``.

A suspended process proves less: its threads are suspended as well, so it could not renew anything if it tried.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

from fairlane.server.__main__ import main

HANG: Final = signal.SIGUSR1
WAKE: Final = signal.SIGUSR2


def hang_on_signals() -> None:
    """Block the event loop on ``HANG`` until ``WAKE`` comes; signal handlers run in the thread of the loop."""
    reader, writer = os.pipe()
    signal.signal(HANG, lambda _number, _frame: os.read(reader, 1))
    signal.signal(WAKE, lambda _number, _frame: os.write(writer, b"!"))


if __name__ == "__main__":
    hang_on_signals()
    sys.exit(main(sys.argv[1:]))
