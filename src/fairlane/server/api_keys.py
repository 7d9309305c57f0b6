"""API keys: who may call. Only a hash of each is kept, in the broker's config, where no other verb shows or sets it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec

from fairlane.assembly import PRIVATE_PREFIX
from fairlane.errors import InvalidArgument, RouteNotFound, Unauthenticated
from fairlane.gateway.caller import ANYBODY, Caller, check_grant
from fairlane.gateway.protocol import Observed
from fairlane.verbs.keys import CreatedKey, CreateKey, Grant, KeyList, KeyShown, ListKeys, RevokeKey
from fairlane.verbs.verb import Done

PREFIX: Final = PRIVATE_PREFIX + "key:"
_ID_BYTES, _SECRET_BYTES = 8, 32
_NAME_LENGTH_MAX: Final = 128
_SWEEP_S: Final = 0.5


class _Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key as it is kept."""

    name: str
    hash: str
    grants: tuple[Grant, ...]
    created_ms: int
    expires_ms: int | None = None


class KeyRing:
    """The keys that are good. It remembers what is kept, as far as it has written that itself or has loaded it."""

    def __init__(self, broker: Observed, *, is_required: bool = False) -> None:
        self._broker = broker
        self._kept: dict[str, _Kept] = {}
        self._endings: dict[str, asyncio.Event] = {}
        self.is_required = is_required

    def __len__(self) -> int:
        return len(self._kept)

    async def load(self) -> None:
        """Remember the keys that are kept."""
        self.keep(await self._broker.list_config(PREFIX))

    def keep(self, values: Mapping[str, str]) -> None:
        """Remember these keys and no others; whoever has one that is not among them is told."""
        self._kept = {key.removeprefix(PREFIX): msgspec.json.decode(value, type=_Kept) for key, value in values.items()}
        self.sweep()

    def caller(self, authorization: str | None) -> Caller:
        """Return who calls, from the header of that name.

        Raises:
            Unauthenticated: a key is asked for, and there is none, or none that is good.
        """
        if not self.is_required:
            return ANYBODY
        if authorization is None:
            raise Unauthenticated("The request has no key; a header 'Authorization: Bearer fl_...' is asked for.")
        scheme, _, token = authorization.partition(" ")
        found = self._find(token.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            raise Unauthenticated("The key is not known, or has been revoked.")
        key_id, kept = found
        if self._has_expired(kept):
            raise Unauthenticated(f"The key {kept.name!r} has expired.")
        return Caller(kept.name, kept.grants, key_id, authorization)

    def _find(self, token: str) -> tuple[str, _Kept] | None:
        mark, _, rest = token.partition("_")
        key_id, _, secret = rest.partition("_")
        kept = self._kept.get(key_id)
        if mark != "fl" or kept is None or not hmac.compare_digest(kept.hash, _hash(secret)):
            return None
        return key_id, kept

    def _has_expired(self, kept: _Kept) -> bool:
        return kept.expires_ms is not None and kept.expires_ms <= self._broker.now_ms()

    # ------------------------------------------------------------------------------------------------- open connections

    async def ended(self, caller: Caller) -> None:
        """Return when a caller's key is good for nothing any more: at once if revoked, with ``sweep`` if expired."""
        if caller.id is None:
            await asyncio.get_running_loop().create_future()  # nobody asks for keys, so none can end
            return
        ending = self._endings.setdefault(caller.id, asyncio.Event())
        self._look_at(caller.id)
        await ending.wait()

    def sweep(self) -> None:
        """Tell those who wait for it that a key has expired."""
        for key_id in list(self._endings):
            self._look_at(key_id)

    def _look_at(self, key_id: str) -> None:
        kept = self._kept.get(key_id)
        if kept is None or self._has_expired(kept):
            ending = self._endings.pop(key_id, None)
            if ending is not None:
                ending.set()

    async def keep_sweeping(self) -> None:
        """Sweep as often as it takes to notice within a second that a key has expired."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.sweep()

    # ---------------------------------------------------------------------------------------------- making and revoking

    async def create(self, request: CreateKey, caller: Caller) -> CreatedKey:
        """Make a key.

        Raises:
            InvalidArgument: the request makes no sense; there is no new key.
        """
        if not 1 <= len(request.name) <= _NAME_LENGTH_MAX:
            raise InvalidArgument(f"A key's name has from 1 to {_NAME_LENGTH_MAX} characters.")
        if not request.grants:
            raise InvalidArgument("A key has at least one grant; without any it would be good for nothing.")
        for grant in request.grants:
            check_grant(grant)
        key_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_hex(_SECRET_BYTES)
        kept = _Kept(
            name=request.name,
            hash=_hash(secret),
            grants=request.grants,
            created_ms=self._broker.now_ms(),
            expires_ms=request.expires_ms,
        )
        await self._broker.set_config(PREFIX + key_id, msgspec.json.encode(kept).decode(), by=caller.name)
        self._kept[key_id] = kept
        return CreatedKey(id=key_id, key=f"fl_{key_id}_{secret}")

    async def revoke(self, request: RevokeKey, caller: Caller) -> Done:
        """Let a key be good for nothing.

        Raises:
            RouteNotFound: there is no such key.
        """
        if request.id not in self._kept:
            raise RouteNotFound(f"There is no key {request.id!r:.100}.")
        await self._broker.set_config(PREFIX + request.id, None, by=caller.name)
        self._kept.pop(request.id, None)
        self._look_at(request.id)
        return Done()

    async def shown(self, _request: ListKeys, _caller: Caller) -> KeyList:
        """Return all keys, as far as they can be seen."""
        return KeyList(
            keys=[
                KeyShown(
                    id=key_id,
                    name=kept.name,
                    grants=kept.grants,
                    created_ms=kept.created_ms,
                    expires_ms=kept.expires_ms,
                )
                for key_id, kept in sorted(self._kept.items())
            ]
        )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
