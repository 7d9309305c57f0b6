"""An alarm: a fact in the tables that a person should look at, for as long as it is one."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["above_entitlement", "slower", "new_error"]


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and since when.

    Attributes:
        kind: ``above_entitlement`` for a tenant that is served too much, ``slower`` for a fairness key whose waits have
            risen, ``new_error`` for a kind of error that was not seen before.
        queue: the queue.
        subject: the tenant, the fairness key, or the id of the error.
        since_ms: when it was found first.
        value: the part of the service, the wait in milliseconds, or the number of dead letters.
        expected: what was expected instead.
        text: a sentence about it.
    """

    kind: Kind
    queue: str
    subject: str
    since_ms: int
    value: float
    expected: float
    text: str

    @property
    def identity(self) -> tuple[str, str, str]:
        """What makes it the same alarm when it is found again."""
        return self.kind, self.queue, self.subject
