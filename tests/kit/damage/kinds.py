"""The kinds of damage: named ones, and random ones by seed."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path], str]
"""Damages the store in a folder, and returns what it did."""


def _flip(file: Path, at: int, *, mask: int = 0x01) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)
        opened.seek(at)
        opened.write(bytes([byte[0] ^ mask]))


def _overwrite(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(data)


def _size(file: Path) -> int:
    return file.stat().st_size


def log_in(folder: Path) -> Path:
    """Return the log."""
    return max(folder.glob("rocksdb/*.log"), key=_size)


def _tables(folder: Path) -> list[Path]:
    """Return the tables, the largest first: bodies, pages, extent."""
    return sorted(folder.glob("rocksdb/*.sst"), key=_size, reverse=True)


def _manifest(folder: Path) -> Path:
    return next(folder.glob("rocksdb/MANIFEST-*"))


def _current(folder: Path) -> Path:
    return folder / "rocksdb" / "CURRENT"


def _remove(*files: Path) -> None:
    for file in files:
        shutil.rmtree(file) if file.is_dir() else file.unlink()


def _append(file: Path, data: bytes) -> None:
    with file.open("ab") as opened:
        opened.write(data)


KINDS: dict[str, Callable[[Path], object]] = {
    "none": lambda _folder: None,
    "log: 1 byte flipped at 50 %": lambda folder: _flip(log_in(folder), _size(log_in(folder)) // 2),
    "log: 1 byte flipped at 1 %": lambda folder: _flip(log_in(folder), _size(log_in(folder)) // 100),
    "log: 4 KiB zeroed at 50 %": lambda folder: _overwrite(log_in(folder), _size(log_in(folder)) // 2, bytes(4096)),
    "log: cut to 50 %": lambda folder: os.truncate(log_in(folder), _size(log_in(folder)) // 2),
    "log: 100 B off the end": lambda folder: os.truncate(log_in(folder), _size(log_in(folder)) - 100),
    "log: cut to 0": lambda folder: os.truncate(log_in(folder), 0),
    "log: deleted": lambda folder: _remove(log_in(folder)),
    "log: garbage after the end": lambda folder: _append(log_in(folder), random.Random(1).randbytes(5000)),
    "log: zeros after the end": lambda folder: _append(log_in(folder), bytes(5000)),
    "folder rocksdb gone": lambda folder: _remove(folder / "rocksdb"),
    "CURRENT and log gone": lambda folder: _remove(_current(folder), log_in(folder)),
    "MANIFEST: 1 byte flipped": lambda folder: _flip(_manifest(folder), _size(_manifest(folder)) // 2),
    "MANIFEST: cut in half": lambda folder: os.truncate(_manifest(folder), _size(_manifest(folder)) // 2),
    "CURRENT: empty": lambda folder: os.truncate(_current(folder), 0),
    "CURRENT: gone": lambda folder: _remove(_current(folder)),
    "CURRENT: names another file": lambda folder: _current(folder).write_text("MANIFEST-000099\n"),
    "mark: wrong": lambda folder: (folder / "FAIRLANE").write_text("fairy lane\n"),
    "mark: gone": lambda folder: _remove(folder / "FAIRLANE"),
    "table of pages: 1 byte flipped": lambda folder: _flip(_tables(folder)[1], 100),
    "table of the extent: 1 byte flipped": lambda folder: _flip(_tables(folder)[2], 5),
    "table: deleted": lambda folder: _remove(_tables(folder)[1]),
    "table: cut in half": lambda folder: os.truncate(_tables(folder)[1], _size(_tables(folder)[1]) // 2),
    "table of bodies: 1 byte flipped": lambda folder: _flip(_tables(folder)[0], 100),
    "OPTIONS, IDENTITY and LOCK gone": lambda folder: _remove(
        *folder.glob("rocksdb/OPTIONS-*"), folder / "rocksdb" / "IDENTITY", folder / "rocksdb" / "LOCK"
    ),
    "high-water mark: gone": lambda folder: _remove(folder / "HIGH-WATER"),
    "high-water mark: 1 byte flipped": lambda folder: _flip(folder / "HIGH-WATER", 40),
}
"""Damage to each kind of file in a store in RocksDB, by name."""


def active_in(folder: Path) -> Path:
    """Return the segment that was written to last."""
    return max(folder.glob("log/*.segment"), key=_segment_number)


def _segment_number(file: Path) -> int:
    with file.open("rb") as opened:
        return int.from_bytes(opened.read(32)[24:32], "little")


def _full(folder: Path) -> Path:
    """Return a full segment."""
    return min(folder.glob("log/*.segment"), key=lambda file: _segment_number(file) or 1 << 60)


def _summary(folder: Path) -> Path:
    return min(folder.glob("log/*.summary"))


def used(file: Path) -> int:
    """Return where the zeros at the end of a file begin."""
    return len(file.read_bytes().rstrip(b"\0"))


def _exchange(file: Path, other: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(data)


def head_in(file: Path, at: int) -> int:
    """Return where the next record after an offset begins."""
    return file.read_bytes().index(b"\xf1Rec", at)


def _flip_unsummarised(folder: Path) -> None:
    _remove(*folder.glob("log/*.summary"))
    _flip(_full(folder), used(_full(folder)) // 2)


_FIRST_RECORD = 512
LOG_KINDS: dict[str, Callable[[Path], object]] = {
    "none": KINDS["none"],
    "log: 1 byte flipped at 50 %": lambda folder: _flip(active_in(folder), used(active_in(folder)) // 2),
    "log: 1 byte flipped at 1 %": lambda folder: _flip(active_in(folder), used(active_in(folder)) // 100),
    "log: a commit flipped at 50 %": lambda folder: _flip(
        active_in(folder), head_in(active_in(folder), used(active_in(folder)) // 2) + 50
    ),
    "log: 4 KiB zeroed at 50 %": lambda folder: _overwrite(
        active_in(folder), used(active_in(folder)) // 2, bytes(4096)
    ),
    "log: cut to 50 %": lambda folder: os.truncate(active_in(folder), used(active_in(folder)) // 2),
    "log: 100 B off the end": lambda folder: os.truncate(active_in(folder), _size(active_in(folder)) - 100),
    "log: 100 B zeroed at the end": lambda folder: _overwrite(
        active_in(folder), used(active_in(folder)) - 100, bytes(100)
    ),
    "log: cut to 0": lambda folder: os.truncate(active_in(folder), 0),
    "log: deleted": lambda folder: _remove(active_in(folder)),
    "log: garbage after the end": lambda folder: _overwrite(
        active_in(folder), used(active_in(folder)) + 64, random.Random(1).randbytes(2000)
    ),
    "log: zeros after the end": lambda folder: _overwrite(active_in(folder), used(active_in(folder)) + 64, bytes(2000)),
    "header: 1 byte flipped": lambda folder: _flip(active_in(folder), 30),
    "header: zeroed": lambda folder: _overwrite(active_in(folder), 0, bytes(_FIRST_RECORD)),
    "checkpoint: 1 byte flipped": lambda folder: _flip(active_in(folder), _FIRST_RECORD + 120),
    "checkpoint: zeroed": lambda folder: _overwrite(active_in(folder), _FIRST_RECORD, bytes(256)),
    "full segment: 1 byte flipped": lambda folder: _flip(_full(folder), used(_full(folder)) // 2),
    "full segment: header flipped": lambda folder: _flip(_full(folder), 30),
    "full segment: first record zeroed": lambda folder: _overwrite(_full(folder), _FIRST_RECORD, bytes(4096)),
    "full segment: deleted": lambda folder: _remove(_full(folder)),
    "full segment: cut in half": lambda folder: os.truncate(_full(folder), _size(_full(folder)) // 2),
    "full segment: swapped with the last": lambda folder: _exchange(_full(folder), active_in(folder)),
    "full segment: copied over the last": lambda folder: shutil.copyfile(_full(folder), active_in(folder)),
    "summary: deleted": lambda folder: _remove(_summary(folder)),
    "summary: 1 byte flipped": lambda folder: _flip(_summary(folder), 20),
    "summaries deleted, full segment flipped": _flip_unsummarised,
    "folder log gone": lambda folder: _remove(folder / "log"),
    "LOCK gone": lambda folder: _remove(folder / "log" / "LOCK"),
} | {name: damage for name, damage in KINDS.items() if name.startswith(("mark: ", "high-water "))}
"""Damage to each kind of file in a store in a log, by name."""


def random_damage(folder: Path, seed: int) -> str:
    """Damage one file of a store in a random way, and return what was done to it."""
    chance = random.Random(seed)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    file = chance.choice(files)
    name = chance.choice(sorted(_WAYS))
    other = chance.choice([each for each in files if each != file])
    return f"{file.name}: {_WAYS[name](chance, file, other)}"


def _flips(chance: random.Random, file: Path, _other: Path) -> str:
    size = _size(file)
    count = chance.choice([1, 1, 3, 50])
    for _ in range(count if size else 0):
        _flip(file, chance.randrange(size), mask=1 << chance.randrange(8))
    return f"{count} bits flipped"


def _fill(chance: random.Random, file: Path, *, zeros: bool) -> str:
    at = chance.randrange(_size(file) + 1)
    count = min(chance.choice([1, 16, 512, 4096, 65536]), _size(file) - at)
    _overwrite(file, at, bytes(count) if zeros else chance.randbytes(count))
    return f"{count} bytes at {at} {'zeroed' if zeros else 'overwritten'}"


def _zeros(chance: random.Random, file: Path, _other: Path) -> str:
    return _fill(chance, file, zeros=True)


def _noise(chance: random.Random, file: Path, _other: Path) -> str:
    return _fill(chance, file, zeros=False)


def _cut(chance: random.Random, file: Path, _other: Path) -> str:
    size = chance.choice([0, chance.randrange(_size(file) + 1), max(0, _size(file) - chance.randint(1, 200))])
    os.truncate(file, size)
    return f"cut to {size} bytes"


def _delete(_chance: random.Random, file: Path, _other: Path) -> str:
    file.unlink()
    return "deleted"


def _swap(_chance: random.Random, file: Path, other: Path) -> str:
    data, others = file.read_bytes(), other.read_bytes()
    file.write_bytes(others)
    other.write_bytes(data)
    return f"swapped with {other.name}"


def _copy_over(_chance: random.Random, file: Path, other: Path) -> str:
    shutil.copyfile(file, other)
    return f"copied over {other.name}"


def _duplicate(chance: random.Random, file: Path, _other: Path) -> str:
    name = f"{chance.randrange(1, 200):06}{file.suffix or '.log'}"
    shutil.copyfile(file, file.with_name(name))
    return f"duplicated as {name}"


def _lengthen(chance: random.Random, file: Path, _other: Path) -> str:
    count = chance.choice([1, 100, 5000])
    _append(file, chance.randbytes(count))
    return f"{count} bytes appended"


_WAYS: dict[str, Callable[[random.Random, Path, Path], str]] = {
    "flip": _flips,
    "flip more": _flips,
    "zero": _zeros,
    "noise": _noise,
    "cut": _cut,
    "delete": _delete,
    "swap": _swap,
    "copy": _copy_over,
    "duplicate": _duplicate,
    "append": _lengthen,
}
