"""How long the driver or a task retries a server, or the nodes of a cluster, that cannot answer at the moment."""

from __future__ import annotations

import threading
import time

from fairlane.client import Retries
from fairlane.client.retries import is_passing, pause_s
from fairlane.errors import Closed, FairlaneError, StoreFenced


class Patience:
    """Waits between retries, longer each time, up to a time limit that starts with the first failure."""

    def __init__(self, retries: Retries | None = None) -> None:
        self._retries = retries or Retries()
        self.renew()

    def renew(self) -> None:
        """Restart the time limit, because there was progress."""
        self._waits_s = self._retries.waits_s()
        self._until_s: float | None = None

    def wait(self, error: FairlaneError) -> None:
        """Wait after a failure.

        Raises:
            FairlaneError: the failure itself, if it will not pass, or has not for too long.
        """
        now_s = time.monotonic()
        if self._until_s is None:
            self._until_s = now_s + self._retries.patience_s
        if not is_of_the_moment(error) or now_s >= self._until_s:
            raise error
        threading.Event().wait(pause_s(error, next(self._waits_s)))


def is_of_the_moment(error: FairlaneError) -> bool:
    """Return whether a retry may succeed, later or on another node: a node may be shutting down or fenced."""
    return is_passing(error) or isinstance(error, Closed | StoreFenced)
