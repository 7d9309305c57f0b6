"""Stores in processes of their own, to be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PRELUDE = """
import os, signal, sys
from fairlane.assembly import open_store
from fairlane.testing.store_contract import commit_of

store = open_store(sys.argv[1], durability=sys.argv[2])
store.recover()
"""
_HOLD = """
print("open", flush=True)
sys.stdin.read()
"""
_WRITE_AND_DIE = """
for sequence in range(1, int(sys.argv[3]) + 1):
    store.write(commit_of(sequence, 1, bodies=[(sequence, b"%d" % sequence * 500)]))
store.sync()
os.kill(os.getpid(), signal.SIGKILL)
"""


def write_and_die(folder: Path, *, commits: int, durability: str = "fsync", kind: str = "rocksdb") -> int:
    """Write commits with a body each in another process, which syncs and is killed. Return its exit code."""
    arguments = [f"{kind}:{folder}", durability, str(commits)]
    return subprocess.run([sys.executable, "-c", _PRELUDE + _WRITE_AND_DIE, *arguments], check=False).returncode


@contextmanager
def held_open(folder: Path, *, kind: str = "rocksdb") -> Iterator[None]:
    """Keep a store open in another process."""
    command = [sys.executable, "-c", _PRELUDE + _HOLD, f"{kind}:{folder}", "fsync"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield
        process.communicate()
