"""Proofs by which nodes know each other.

A node that asks on behalf of a caller is treated differently from the caller itself: it is answered from here only, and
may name partitions that no caller can name. So it has to prove that it is a node. The first node of a cluster puts a
random secret on the board, which only nodes can read; no setting is needed. The secret itself is never sent: a proof is
a code over the names of both sides, so what one node has been sent is no use at another.

A proof does not vouch for the caller. The node that is asked checks the caller's own API key again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable


class NodeProofs:
    """Makes the proofs of one node, and checks those of others."""

    def __init__(self, *, node: str, address: str, secret: Callable[[], str | None]) -> None:
        """Know one node.

        Args:
            node: its name.
            address: where other nodes reach it, as the board says.
            secret: returns the secret of the cluster, or None before it is known.
        """
        self._node = node
        self._address = address
        self._secret = secret

    def for_node_at(self, address: str) -> str:
        """Return what proves to the node at an address that this one asks."""
        return f"{self._node} {_code(self._secret() or '', self._node, address)}"

    def is_valid(self, proof: str) -> bool:
        """Return whether a node of this cluster made a proof for this one."""
        secret, (node, _, code) = self._secret(), proof.rpartition(" ")
        if not secret:
            return False
        return hmac.compare_digest(code.encode(), _code(secret, node, self._address).encode())


def _code(secret: str, node: str, address: str) -> str:
    return hmac.new(secret.encode(), f"{node}\n{address}".encode(), hashlib.sha256).hexdigest()
