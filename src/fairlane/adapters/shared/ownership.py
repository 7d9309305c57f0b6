"""One owner at a time, for stores that several processes can reach.

Theory of operation
-------------------
A process that opens such a store becomes its owner: the epoch of the store grows by one, and every commit is
conditional on the epoch, so a commit that an earlier owner sends later changes nothing. That alone keeps the store
safe. No clock takes part in it.

Heartbeats are for politeness: a store whose owner has shown a sign of life within the heartbeat timeout is not taken
over. A commit is a heartbeat, and a thread sends others while there are no commits. If clocks are wrong or a process
sleeps through its timeout, a store is taken over too early or too late, which costs time, never data.

The thread sends no heartbeats for a process that hangs: while its event loop makes no progress, no request is answered,
and another process had better take over. When the process wakes up, it finds the store taken.

The owner checks the same timeout by its own clock. Once it has been silent for that long it asks the store before it
answers even a read, since another process may own the store by then and have committed something newer.

A process may also know from elsewhere that the owner's process has *ended*. Then it does not wait for the timeout. What
it knows may be wrong, so an owner that others may take for ended is *in doubt*: it also asks before each answer.
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
"""An owner sends this many heartbeats within a heartbeat timeout, so that one or two may be lost."""
_log = logging.getLogger("fairlane.store")


def _unique_owner() -> str:
    return f"{socket.gethostname()[:100]}/{os.getpid()}/{secrets.token_hex(4)}"


def _never_stuck() -> float:
    return 0.0


def _new_process() -> str:
    return secrets.token_hex(8)


def _never_in_doubt() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerProcess:
    """What a process knows of itself, and of others that may own its stores.

    Attributes:
        name: a name that no other process has, also none that is started as the same owner later.
        stuck_s: returns for how long the process has made no progress, in seconds. Its stores get no heartbeats once
            that takes longer than the time between two of them.
        is_in_doubt: returns whether others may know that a process of this name has ended.
        ended: the processes that are known to have ended. They are not waited for.
    """

    name: str = field(default_factory=_new_process)
    stuck_s: Callable[[], float] = _never_stuck
    is_in_doubt: Callable[[], bool] = _never_in_doubt
    ended: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The terms on which a process owns a store.

    Attributes:
        owner: the name of the owner, for operators, and for a restarted process: one with the owner's name takes over
            at once. By default a name that no other process has.
        heartbeat_timeout_ms: how long after its last heartbeat an owner is not taken over from.
        force: take over from a live owner.
        sends_heartbeats: whether a thread sends heartbeats while there are no commits.
        process: the process that owns it.
    """

    owner: str = field(default_factory=_unique_owner)
    heartbeat_timeout_ms: int = HEARTBEAT_TIMEOUT_MS
    force: bool = False
    sends_heartbeats: bool = True
    process: OwnerProcess = field(default_factory=OwnerProcess)

    def __post_init__(self) -> None:
        if not 0 < len(self.owner) <= _NAME_LENGTH_MAX or not self.owner.isprintable():
            raise InvalidArgument(
                f"The owner of a store must have 1 to {_NAME_LENGTH_MAX} printable characters, got {self.owner!r:.100}."
            )
        if not _TIMEOUT_MS_MIN <= self.heartbeat_timeout_ms <= _TIMEOUT_MS_MAX:
            raise InvalidArgument(
                f"heartbeat_timeout_ms must be {_TIMEOUT_MS_MIN} to {_TIMEOUT_MS_MAX}, got {self.heartbeat_timeout_ms}."
            )

    @property
    def is_stuck(self) -> bool:
        """Whether the process hangs, so that another should take over."""
        return self.process.stuck_s() * 1_000 >= self.heartbeat_timeout_ms / _RENEWALS

    def new_session(self) -> str:
        """Return a name for one opening of the store. It contains the name of the process."""
        return f"{self.process.name}.{secrets.token_hex(8)}"

    def check_free(self, *, owner: str | None, session: str, left_ms: int) -> None:
        """Raise if another live process owns the store.

        Args:
            owner: the current owner of the store; None if it has none.
            session: its session.
            left_ms: how long that owner still counts as alive.

        Raises:
            StoreLocked: another owner is alive, and ``force`` is not set.
        """
        if owner is None or owner == self.owner or left_ms <= 0 or self.force:
            return
        if session.partition(".")[0] in self.process.ended:
            return
        raise StoreLocked(
            f"The store is owned by {owner!r}. It can be taken over in {left_ms} ms if no further heartbeat arrives.",
            retry_after_ms=left_ms,
        )


class Tenure:
    """The time for which a store is certainly ours, by our own clock."""

    def __init__(self, ownership: Ownership, monotonic: Callable[[], float]) -> None:
        self._timeout_s = ownership.heartbeat_timeout_ms / 1_000
        self._is_in_doubt = ownership.process.is_in_doubt
        self._monotonic = monotonic
        self._renewed_s = 0.0
        self._fenced: str | None = None

    def now(self) -> float:
        """Return the instant of a heartbeat that is about to be sent. Take it before sending, never after the
        answer.
        """
        return self._monotonic()

    def note(self, sent_s: float) -> None:
        """Record that a heartbeat sent at an instant has arrived."""
        self._renewed_s = max(self._renewed_s, sent_s)

    def fence(self, cause: str) -> StoreFenced:
        """Record that another process has taken over, which is final, and return the error to raise."""
        self._fenced = cause
        return StoreFenced(cause)

    def check(self) -> None:
        """Raise StoreFenced if another process has taken over."""
        if self._fenced is not None:
            raise StoreFenced(self._fenced)

    @property
    def has_lapsed(self) -> bool:
        """Whether another process may have taken over since the last heartbeat."""
        return self._monotonic() - self._renewed_s >= self._timeout_s or self._is_in_doubt()

    @property
    def is_due(self) -> bool:
        """Whether it is time for a heartbeat."""
        return self._monotonic() - self._renewed_s >= self._timeout_s / _RENEWALS


class HeartbeatThread:
    """A thread that calls a function at regular intervals until it is stopped."""

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
            except Exception:  # noqa: BLE001 - the thread must go on with the next heartbeat
                _log.exception("Unexpected error in the heartbeat thread of a store; retrying.")

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()


def start_heartbeats(ownership: Ownership, renew: Callable[[], None], *, name: str) -> HeartbeatThread | None:
    """Start and return the heartbeat thread of a store, or return None if its owner sends none."""
    if not ownership.sends_heartbeats:
        return None
    return HeartbeatThread(renew, every_ms=max(1, ownership.heartbeat_timeout_ms // (2 * _RENEWALS)), name=name)
