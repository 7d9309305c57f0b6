"""How long somebody goes on asking a server, or the nodes of a cluster, that can't answer just now."""

from __future__ import annotations

import threading
import time

from fairlane.client import Retries
from fairlane.client.retries import is_passing, pause_s
from fairlane.errors import Closed, FairlaneError, StoreFenced


class Patience:
    """Waits between repetitions, a little more each time, and gives up in the end. It begins with the first failure."""

    def __init__(self, retries: Retries | None = None) -> None:
        self._retries = retries or Retries()
        self.renew()

    def renew(self) -> None:
        """Begin anew, since something came."""
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
    """Tell whether a question may be answered a little later, or elsewhere: a node may be going down or be fenced."""
    return is_passing(error) or isinstance(error, Closed | StoreFenced)
