"""The high-water mark: how far answers were given, and which sequences may have been issued, whatever the log says.

A log that loses its end looks like one that ended there. So a small file beside the database says how far the store
must reach at least, and from where on sequences are certainly unused:

- ``answered``: commits before this sequence were answered. A store that ends earlier has lost something. It is written
  at most a second after the answer, so a loss within the last second before a crash cannot be told from a torn end.
- ``synced``: the same, but holds also after the machine itself has restarted. With durability ``fsync`` both are equal.
  With ``os``, answered commits may be lost with the machine, and that is no damage.
- ``reserved``: sequences before this one may have been issued. It is written *before* they are. A store that was not
  closed goes on from there, so that no id or fencing token is ever issued twice, even if the end of the log is gone
  and nothing tells so. Closing sets it to the end of the store.

The file holds the mark twice, in two blocks, each with a checksum, and each is synced before the other is written: no
single torn or damaged block takes both.
"""

from __future__ import annotations

import logging
import threading
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from fairlane.adapters.folder.file_system import FileSystem, SystemFiles, read_all
from fairlane.errors import StoreDamaged, StoreFailed

FILE_NAME = "HIGH-WATER"
INTERVAL_S = 1.0
RESERVE_MIN = 1 << 16
_RESERVE_RATIO = 4
_COPY_BYTES = 256
_COPIES_AT = (0, 4096)
_WORDS = "fairlane high-water 1"
_log = logging.getLogger("fairlane.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWater:
    """How far a store reaches at least, and which sequences may have been issued; see the module.

    Attributes:
        boot: identifies the run of the machine in which it was written; empty where that is unknown.
    """

    answered: int = 1
    synced: int = 1
    reserved: int = 1
    boot: str = ""

    def required(self, boot: str | None = None) -> int:
        """Return the sequence that the store must reach now, in a run of the machine; this one unless given."""
        return self.answered if self.is_same_boot(boot) else self.synced

    def is_same_boot(self, boot: str | None = None) -> bool:
        """Return whether the machine has been running since the mark was written."""
        return bool(self.boot) and self.boot == (boot if boot is not None else boot_id())


def boot_id() -> str:
    """Return what identifies this run of the machine; empty where the operating system does not say."""
    return SystemFiles().boot_id()


def _encoded(mark: HighWater) -> bytes:
    text = f"{_WORDS} answered={mark.answered} synced={mark.synced} reserved={mark.reserved} boot={mark.boot}"
    return f"{text} check={zlib.crc32(text.encode()):08x}\n".encode().ljust(_COPY_BYTES, b" ")


def _decoded(data: bytes) -> HighWater | None:
    """Return the mark in one of the copies; None if it cannot be read."""
    text, _, check = data.decode("ascii", errors="replace").rstrip(" \n").rpartition(" check=")
    if not text.startswith(_WORDS) or check != f"{zlib.crc32(text.encode()):08x}":
        return None
    fields = dict(word.partition("=")[::2] for word in text.removeprefix(_WORDS).split())
    numbers = {name: int(fields[name]) for name in ("answered", "synced", "reserved")}
    return HighWater(**numbers, boot=fields["boot"])


def read_high_water(folder: Path, files: FileSystem | None = None) -> HighWater | None:
    """Return the mark of a store; None if neither copy can be read.

    If the copies differ, the process died between them, and the greater numbers hold: a reservation in one copy only
    was never used, but skipping it costs nothing.
    """
    files = files if files is not None else SystemFiles()
    if FILE_NAME not in files.names(folder):
        return None
    data = read_all(files, folder / FILE_NAME)
    copies = [_decoded(data[at : at + _COPY_BYTES]) for at in _COPIES_AT]
    found = [mark for mark in copies if mark is not None]
    if not found:
        return None
    latest = max(found, key=lambda mark: (mark.reserved, mark.answered))
    return replace(latest, reserved=max(mark.reserved for mark in found))


def write_high_water(folder: Path, mark: HighWater, files: FileSystem | None = None) -> None:
    """Write both copies of the mark, each synced before the other is touched."""
    files = files if files is not None else SystemFiles()
    data = _encoded(mark)
    path = folder / FILE_NAME
    is_new = FILE_NAME not in files.names(folder)
    handle = files.create(path) if is_new else files.open(path)
    try:
        for at in _COPIES_AT:
            files.write(handle, [data], at)
            files.sync(handle)
    finally:
        files.close(handle)
    if is_new:  # before the mark says that the store was made
        files.sync_folder(folder)


class HighWaterKeeper:
    """Keeps the mark of a store while it is open: a second behind the answers at most, and ahead of the sequences.

    A thread writes it, so a commit waits for it only if the sequences of several seconds are used up in one.

    Attributes:
        answered: the store sets it to the next sequence whenever commits are about to be answered.
        synced: likewise, if they are durable.
        reserved: sequences before it may be issued without asking.
    """

    def __init__(self, folder: Path, files: FileSystem | None = None) -> None:
        self.answered = self.synced = 1
        self.reserved = 0
        self._folder = folder
        self._files = files if files is not None else SystemFiles()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._mark = HighWater()
        self._paced_to = 1
        """How far the pace of this process was measured; what it skipped when it began is not its pace."""
        self._issued: int | None = None
        """Sequences before it were issued by this process, or may have been by an earlier one; None before opening."""

    def begin(self, end: int, found: HighWater) -> int:
        """Begin when the store was opened, and return the first sequence that was certainly never issued.

        Args:
            end: the next sequence of the store. All before is durable, since opening has moved the logs to tables.
            found: the mark from before.

        Raises:
            StoreDamaged: the store reached further when this process had it open before.
            StoreFailed: the mark cannot be written.
        """
        with self._lock:
            if end < self.answered:
                raise StoreDamaged(
                    f"{self._folder} ends before sequence {end}, but commits before {self.answered} were answered."
                )
            # This process knows what it has issued. Of an earlier one that was not closed it knows the reservation.
            self._issued = found.reserved if self._issued is None else max(self._issued, self.answered)
            self.answered = self.synced = end
            self._mark = HighWater(answered=end, synced=end, reserved=found.reserved, boot=self._files.boot_id())
            self._paced_to = max(end, self._issued)
            self._advance(max(end, self._issued))
            self._stopped = threading.Event()
        threading.Thread(target=self._follow, args=(self._stopped,), name="fairlane-high-water", daemon=True).start()
        return max(end, self._issued)

    def reserve(self, end: int) -> None:
        """Reserve the sequences before an end, and as many as are likely to be needed soon.

        Raises:
            StoreFailed: the mark cannot be written, so the sequences must not be used.
        """
        with self._lock:
            self._advance(end)

    def close(self, end: int) -> None:
        """Write that the store was closed at an end, so that the next sequence follows on it."""
        with self._lock:
            self._stopped.set()
            self.answered = self.synced = end
            self._write(replace(self._mark, answered=end, synced=end, reserved=max(end, self._issued or 0)))

    def abandon(self) -> None:
        """Write nothing more: the store has failed, and where it ends is unknown."""
        with self._lock:
            self._stopped.set()

    def note(self) -> None:
        """Write what was answered, unless the store was closed or nothing was.

        Raises:
            StoreFailed: the mark cannot be written.
        """
        with self._lock:
            if not self._stopped.is_set() and self._mark.answered != self.answered:
                self._advance(self.answered)

    def _follow(self, stopped: threading.Event) -> None:
        """Write once a second what was answered, until the store is closed."""
        while not stopped.wait(INTERVAL_S):
            try:
                self.note()
            except StoreFailed as error:
                _log.warning("%s", error)

    def _advance(self, end: int) -> None:
        answered, synced = self.answered, min(self.synced, self.answered)
        ahead = max(RESERVE_MIN, _RESERVE_RATIO * (answered - self._paced_to))
        self._paced_to = max(self._paced_to, answered)
        reserved = max(self._mark.reserved, end + ahead)
        mark = replace(self._mark, answered=answered, synced=synced, reserved=reserved)
        self._write(mark)
        self._mark = mark
        self.reserved = reserved

    def _write(self, mark: HighWater) -> None:
        try:
            write_high_water(self._folder, mark, self._files)
        except OSError as error:
            raise StoreFailed(f"Cannot write {self._folder / FILE_NAME}: {error}.") from error
