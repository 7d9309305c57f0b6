"""The data folder of a server: its store is one folder deeper, beside a mark that says that it was made.

A store notices what is missing in it. If all of it is missing, only something beside it can tell that from a first
start, so the server writes the mark whenever its store has opened. The mark also says how far the store had come, so
that a store which takes the place of a vanished one can go on above that. A folder without a mark may be older than it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from fairlane.errors import StoreDamaged
from fairlane.files import write_secret

STORE_FOLDER: Final = "store"
STORE_MARK: Final = "STORE-MADE"
_TEXT: Final = f"""\
The folder {STORE_FOLDER} beside this file holds the store of a Fairlane server, which had come to sequence {{}}.
If it vanishes, the server does not start: without this file it would begin a new, empty store.
"""
_SEQUENCE: Final = re.compile(rb"sequence (\d+)")


def is_marked(data: Path) -> bool:
    """Return whether the store in a data folder was made."""
    return (data / STORE_MARK).exists()


def mark_made(data: Path, *, sequence: int) -> None:
    """Note durably that the store in a data folder was made, and which sequence it issues next."""
    if not is_marked(data) or marked_sequence(data) < sequence:
        write_secret(data / STORE_MARK, _TEXT.format(sequence))


def note_reached(store: Path, *, sequence: int) -> None:
    """Note how far a store has come, if a mark says that it was made."""
    if store.name == STORE_FOLDER and is_marked(store.parent):
        mark_made(store.parent, sequence=sequence)


def marked_sequence(data: Path) -> int:
    """Return the sequence that the store had come to when it was opened last; 1 if the mark does not say."""
    found = _SEQUENCE.search((data / STORE_MARK).read_bytes())
    return int(found[1]) if found is not None else 1


def loss_of(store: Path) -> str:
    """Return what tells that a store was made and is gone as a whole; empty if nothing does."""
    if store.name != STORE_FOLDER or not is_marked(store.parent) or (store.is_dir() and any(store.iterdir())):
        return ""
    return f"{store} is missing or empty, and {store.parent / STORE_MARK} says that it held a store. Is it mounted?"


def check_not_lost(store: Path) -> None:
    """Raise StoreDamaged if a store was made and is gone as a whole."""
    if loss := loss_of(store):
        raise StoreDamaged(loss)
