"""Both ways to compute CRC-32C agree with published values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlane.adapters.crc32c import crc32c, crc32c_by_table


@pytest.mark.parametrize("checksum", [crc32c, crc32c_by_table])
def test_checksums_are_those_of_the_standard(checksum: Callable[[bytes], int]) -> None:
    """The examples of RFC 3720, appendix B.4, and the usual check value."""
    assert checksum(bytes(32)) == 0x8A9136AA
    assert checksum(b"\xff" * 32) == 0x62A8AB43
    assert checksum(bytes(range(32))) == 0x46DD794E
    assert checksum(b"123456789") == 0xE3069283
