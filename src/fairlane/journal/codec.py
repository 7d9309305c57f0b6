"""The encoding of records: one msgpack value for each commit."""

from __future__ import annotations

import msgspec

from fairlane.journal.records import AnyRecord

VERSION = 1


class Page(msgspec.Struct, array_like=True, gc=False):
    """The records of one commit and the instant they were decided at."""

    version: int
    at_ms: int
    records: list[AnyRecord]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Page)


def encode(records: list[AnyRecord], at_ms: int) -> bytes:
    """Encode the records of a commit."""
    return _encoder.encode(Page(VERSION, at_ms, records))


def decode(page: bytes) -> Page:
    """Decode the records of a commit. Raises ValueError if the bytes are damaged, or a newer version wrote them."""
    try:
        decoded = _decoder.decode(page)
    except msgspec.DecodeError as error:
        _check_version(page)  # a newer version may well have kinds that this one can't decode
        raise ValueError(f"Could not decode a page of the journal: {error}.") from error
    if decoded.version > VERSION:
        _check_version(page)
    return decoded


class _Cover(msgspec.Struct, array_like=True):
    version: int


def _check_version(page: bytes) -> None:
    try:
        version = msgspec.msgpack.decode(page, type=_Cover).version
    except msgspec.DecodeError:
        return
    if version > VERSION:
        raise ValueError(f"The journal has version {version}; this release reads version {VERSION}.")
