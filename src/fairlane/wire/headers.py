"""Names of the HTTP headers that clients and nodes of a cluster use, in lower case as ASGI has them."""

from __future__ import annotations

from typing import Final

FOLLOWS: Final = b"x-fairlane-follows"
"""Sent by a client that goes to the node that owns a queue by itself."""
FORWARDED: Final = b"x-fairlane-forwarded"
"""Sent by a node that asks on behalf of a caller; its value proves that it is a node. Refused from anyone else."""
