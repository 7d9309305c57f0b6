"""The inside of the sandbox, in Lua: how a script is called, how it is stopped, and how its answer leaves.

Theory of operation
-------------------
A runtime holds one script and nothing of Python: strings and numbers go in and come out, and no Python object or
callable ever enters. The host talks to it in three steps, because lupa moves arguments and results outside of Lua's
protected mode, where hitting a memory limit ends the process. So the limit is set only for the second step, which takes
no arguments and returns a number:

1. ``put`` stores messages in a table (no limit: these are the host's own bytes),
2. ``run`` calls the script for one after the other (limits of time and memory),
3. ``take`` returns the flat answers, and ``fault`` returns why the message after them has none (no limit: no code of
the
   script runs).

*Time.* Every 100 instructions a debug hook checks whether time is up. Reading the clock is a system call, so a message
has a few free checks while the heap is small; most scripts end before. Instead, the cost of a single instruction or
library call is kept small: strings, patterns and tables have limits. When a limit is hit, ``stopped`` is set, and
``pcall`` passes the error on instead of catching it. A script has no metatables, coroutines or finalisers, so none of
its code runs while the error propagates.

A message's time starts when its call starts. The start is read after each message that has read the clock, and after
every eighth otherwise: those that never read it took microseconds, so a start is never off by more than a few of them.

*Budget.* ``put`` also says how long ``run`` may take in all. Between two messages, whenever the clock is read, ``run``
stops early if the time is used up. The host asks again about the remaining messages in a later cycle.

*Config.* ``fairlane.get`` finds values in a table. If one is missing, the call is abandoned, the host stores the value,
and the message is run again within the same time limit. A Python callable instead could be made to raise, or to return
a string just at the memory limit, which would end the process with the GIL held.

*State.* Globals that a script sets while it is loaded stay, but cannot be changed: an assignment during a call is
dropped when the call ends. Locals and tables of the script live until a limit is hit and the sandbox is replaced.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

ALL_ANSWERED: Final = 0
CONFIG_NEEDED: Final = 1
FAULT: Final = 2
PAUSED: Final = 4
"""What ``run`` returns. It also returns 3, when the host must take the answers before ``run`` continues."""

CPU_CLOCK: Final = "return os.clock"
"""A chunk that returns the clock of the limits, in seconds: the CPU time of the process, the only fine clock in Lua."""

TOO_LATE: Final = b"late"
TOO_LARGE: Final = b"large"
"""What ``fault`` returns when a limit was hit."""

PRELUDE: Final = "".join(
    files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("library.lua", "protocol.lua")
)
