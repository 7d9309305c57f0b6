"""API keys. The broker's config stores a hash of each, under a prefix that no other verb shows or sets."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec

from fairlane.errors import InvalidArgument, RouteNotFound, Unauthenticated
from fairlane.gateway.caller import ANYBODY, Caller, check_grant
from fairlane.gateway.protocol import Observed
from fairlane.verbs.config import PRIVATE_PREFIX
from fairlane.verbs.keys import CreatedKey, CreateKey, Grant, KeyList, KeyShown, ListKeys, RevokeKey
from fairlane.verbs.verb import Done

PREFIX: Final = PRIVATE_PREFIX + "key:"
_ID_BYTES, _SECRET_BYTES = 8, 32
_NAME_LENGTH_MAX: Final = 128
_SWEEP_S: Final = 0.5


class _StoredKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An API key as it is stored."""

    name: str
    hash: str
    grants: tuple[Grant, ...]
    created_ms: int
    expires_ms: int | None = None


class ApiKeys:
    """The API keys of a server: those it has loaded from the config and those it has created since."""

    def __init__(self, broker: Observed, *, is_required: bool = False) -> None:
        self._broker = broker
        self._keys: dict[str, _StoredKey] = {}
        self._endings: dict[str, asyncio.Event] = {}
        self.is_required = is_required

    def __len__(self) -> int:
        return len(self._keys)

    async def load(self) -> None:
        """Load all API keys from the config."""
        self.replace(await self._broker.list_private_config(PREFIX))

    def replace(self, values: Mapping[str, str]) -> None:
        """Replace all API keys; connections of removed ones end."""
        self._keys = {
            key.removeprefix(PREFIX): msgspec.json.decode(value, type=_StoredKey) for key, value in values.items()
        }
        self.sweep()

    def caller(self, authorization: str | None) -> Caller:
        """Return the caller that an ``Authorization`` header identifies.

        Raises:
            Unauthenticated: the header has no API key, or one that is unknown or expired.
        """
        if not self.is_required:
            return ANYBODY
        if authorization is None:
            raise Unauthenticated("The request has no API key. Send the header 'Authorization: Bearer fl_...'.")
        scheme, _, token = authorization.partition(" ")
        found = self._find(token.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            raise Unauthenticated("The API key is unknown or has been revoked.")
        key_id, kept = found
        if self._has_expired(kept):
            raise Unauthenticated(f"API key {kept.name!r} has expired.")
        return Caller(kept.name, kept.grants, key_id, authorization)

    def _find(self, token: str) -> tuple[str, _StoredKey] | None:
        mark, _, rest = token.partition("_")
        key_id, _, secret = rest.partition("_")
        kept = self._keys.get(key_id)
        if mark != "fl" or kept is None or not hmac.compare_digest(kept.hash, _hash(secret)):
            return None
        return key_id, kept

    def _has_expired(self, kept: _StoredKey) -> bool:
        return kept.expires_ms is not None and kept.expires_ms <= self._broker.now_ms()

    # ------------------------------------------------------------------------------------------------- open connections

    async def ended(self, caller: Caller) -> None:
        """Return when a caller's API key is revoked, or at the next ``sweep`` after it expired."""
        if caller.id is None:
            await asyncio.get_running_loop().create_future()  # authentication is disabled: nothing can end
            return
        ending = self._endings.setdefault(caller.id, asyncio.Event())
        self._end_if_invalid(caller.id)
        await ending.wait()

    def sweep(self) -> None:
        """End the connections of expired API keys."""
        for key_id in list(self._endings):
            self._end_if_invalid(key_id)

    def _end_if_invalid(self, key_id: str) -> None:
        kept = self._keys.get(key_id)
        if kept is None or self._has_expired(kept):
            ending = self._endings.pop(key_id, None)
            if ending is not None:
                ending.set()

    async def keep_sweeping(self) -> None:
        """Sweep often enough to notice an expired API key within a second."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.sweep()

    # ---------------------------------------------------------------------------------------------- making and revoking

    async def create(self, request: CreateKey, caller: Caller) -> CreatedKey:
        """Create an API key. Raises InvalidArgument if the name or a grant is invalid."""
        if not 1 <= len(request.name) <= _NAME_LENGTH_MAX:
            raise InvalidArgument(f"The name of an API key must have 1 to {_NAME_LENGTH_MAX} characters.")
        if not request.grants:
            raise InvalidArgument("An API key needs at least one grant.")
        for grant in request.grants:
            check_grant(grant)
        key_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_hex(_SECRET_BYTES)
        kept = _StoredKey(
            name=request.name,
            hash=_hash(secret),
            grants=request.grants,
            created_ms=self._broker.now_ms(),
            expires_ms=request.expires_ms,
        )
        await self._broker.set_private_config(PREFIX + key_id, msgspec.json.encode(kept).decode(), by=caller.name)
        self._keys[key_id] = kept
        return CreatedKey(id=key_id, key=f"fl_{key_id}_{secret}")

    async def revoke(self, request: RevokeKey, caller: Caller) -> Done:
        """Revoke an API key. Raises RouteNotFound if the API key does not exist."""
        if request.id not in self._keys:
            raise RouteNotFound(f"API key {request.id!r:.100} does not exist.")
        await self._broker.set_private_config(PREFIX + request.id, None, by=caller.name)
        self._keys.pop(request.id, None)
        self._end_if_invalid(request.id)
        return Done()

    async def shown(self, _request: ListKeys, _caller: Caller) -> KeyList:
        """Return all API keys without their secrets."""
        return KeyList(
            keys=[
                KeyShown(
                    id=key_id,
                    name=kept.name,
                    grants=kept.grants,
                    created_ms=kept.created_ms,
                    expires_ms=kept.expires_ms,
                )
                for key_id, kept in sorted(self._keys.items())
            ]
        )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
