"""One owner at a time, for stores that several processes can reach.

Who opens such a store claims it: the epoch of the store grows by one, and every commit is conditional on it, so what an
earlier owner sends later commits nothing. That alone keeps the store safe; no clock has a part in it.

The *lease* is for politeness: a store whose owner has shown signs of life within it is not taken away. Commits are such
signs, and a thread sees to them while there are none.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from fairlane.errors import FairlaneError, InvalidArgument, StoreFenced, StoreLocked

HEARTBEAT_TIMEOUT_MS = 10_000
_TIMEOUT_MS_MIN, _TIMEOUT_MS_MAX = 100, 3_600_000
_NAME_LENGTH_MAX = 200
_RENEWALS = 3
"""An owner shows so many signs of life within a lease."""
_log = logging.getLogger("fairlane.store")


def _somebody() -> str:
    return f"{socket.gethostname()[:100]}/{os.getpid()}/{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """How a store is claimed.

    Attributes:
        owner: the name of the owner, for people, and for a process that was started again: whoever has the owner's
            name takes over at once. By default a name that no other process has.
        heartbeat_timeout_ms: for how long an owner that shows no sign of life is not taken over from.
        force: take over from a live owner.
        sends_heartbeats: whether a thread shows signs of life while there are no commits.
    """

    owner: str = field(default_factory=_somebody)
    heartbeat_timeout_ms: int = HEARTBEAT_TIMEOUT_MS
    force: bool = False
    sends_heartbeats: bool = True

    def __post_init__(self) -> None:
        if not 0 < len(self.owner) <= _NAME_LENGTH_MAX or not self.owner.isprintable():
            raise InvalidArgument(f"The owner of a store has 1 to {_NAME_LENGTH_MAX} printable characters.")
        if not _TIMEOUT_MS_MIN <= self.heartbeat_timeout_ms <= _TIMEOUT_MS_MAX:
            raise InvalidArgument(
                f"heartbeat_timeout_ms must be {_TIMEOUT_MS_MIN} to {_TIMEOUT_MS_MAX}, got {self.heartbeat_timeout_ms}."
            )

    def check_free(self, *, owner: str | None, left_ms: int) -> None:
        """Refuse to take over from an owner that lives.

        Args:
            owner: who owns the store; None for nobody.
            left_ms: for how long that owner still counts as alive.

        Raises:
            StoreLocked: it lives, and is another.
        """
        if owner is None or owner == self.owner or left_ms <= 0 or self.force:
            return
        raise StoreLocked(
            f"The store belongs to {owner!r}, which showed a sign of life; without another it is free in {left_ms} ms.",
            retry_after_ms=left_ms,
        )


class Tenure:
    """For how long a store is certainly ours, by our own clock."""

    def __init__(self, heartbeat_timeout_ms: int, monotonic: Callable[[], float]) -> None:
        self._timeout_s = heartbeat_timeout_ms / 1_000
        self._monotonic = monotonic
        self._renewed_s = 0.0
        self._fenced: str | None = None

    def now(self) -> float:
        """Return the instant to note as that of a sign of life: to be asked for before it is sent."""
        return self._monotonic()

    def note(self, sent_s: float) -> None:
        """Note a sign of life that has arrived."""
        self._renewed_s = max(self._renewed_s, sent_s)

    def fence(self, cause: str) -> StoreFenced:
        """Note that another has taken over, for good, and return the error that says so."""
        self._fenced = cause
        return StoreFenced(cause)

    def check(self) -> None:
        """Refuse to go on after another has taken over.

        Raises:
            StoreFenced: it has.
        """
        if self._fenced is not None:
            raise StoreFenced(self._fenced)

    @property
    def has_lapsed(self) -> bool:
        """Whether another may have taken over since the last sign of life."""
        return self._monotonic() - self._renewed_s >= self._timeout_s

    @property
    def is_due(self) -> bool:
        """Whether it is time for a sign of life."""
        return self._monotonic() - self._renewed_s >= self._timeout_s / _RENEWALS


class HeartbeatThread:
    """A thread that does something again and again, until it is told to stop."""

    def __init__(self, do: Callable[[], None], *, every_ms: int, name: str) -> None:
        self._do = do
        self._every_s = every_ms / 1_000
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._do()
            except StoreFenced as error:
                _log.error("%s", error)
                return
            except FairlaneError as error:
                _log.warning("%s", error)
            except Exception:  # noqa: BLE001 - the next time still has to come
                _log.exception("Keeping the store went wrong.")

    def stop(self) -> None:
        """Let it end, and wait until it has."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()


def start_heartbeats(ownership: Ownership, renew: Callable[[], None], *, name: str) -> HeartbeatThread | None:
    """Return a thread that keeps a claimed store, if there shall be one."""
    if not ownership.sends_heartbeats:
        return None
    return HeartbeatThread(renew, every_ms=max(1, ownership.heartbeat_timeout_ms // (2 * _RENEWALS)), name=name)
