"""CRC-32C, the checksum of the log and of RocksDB: from google-crc32c, which uses the instruction of the processor.

Where that package has no binary, a table does the same a thousand times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

__all__ = ["crc32c", "crc32c_by_table"]
_POLYNOMIAL = 0x82F63B78


def _table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def crc32c_by_table(data: bytes) -> int:
    """Return the checksum of bytes."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


crc32c: Callable[[bytes], int] = crc32c_by_table
with suppress(ImportError):
    from google_crc32c import value as crc32c
