"""Addresses of clients: which of them count as one, and which belong to a proxy that is trusted."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final, TypeAlias

from fairlane.errors import InvalidArgument

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_BLOCK_BITS: Final = 64
"""An IPv6 host usually has a network of this prefix to itself, so its addresses count as one."""


def block_of(address: str | None) -> str:
    """Return what limits by address are counted by: an IPv4 address, or the /64 network of an IPv6 address."""
    if address is None or ":" not in address:
        return address or ""
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, _BLOCK_BITS), strict=False))


def networks_of(text: str | None, setting: str) -> tuple[Network, ...]:
    """Return the networks in a list of addresses and networks that is separated by commas.

    Raises:
        InvalidArgument: one of them is neither; the error names the setting.
    """
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    try:
        return tuple(ipaddress.ip_network(part, strict=False) for part in parts)
    except ValueError as error:
        raise InvalidArgument(f"{setting} must be addresses or networks separated by commas: {error}.") from error


def is_among(address: str, networks: Sequence[Network]) -> bool:
    """Return whether an address is in one of some networks."""
    if not networks:
        return False
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return any(found in network for network in networks)
