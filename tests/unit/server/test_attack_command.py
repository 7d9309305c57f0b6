"""The command that attacks a server judges what an attack leaves behind, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from fairlane.testing.attack.__main__ import _run
from fairlane.testing.attack.attack import Attack, Outcome
from fairlane.testing.attack.bystander import Bystander, Experience
from fairlane.testing.attack.target import AttackedServer


class SlowToClean:
    """A server, and its bystander, that stalls while what an attack has made is removed."""

    has_keys = True

    def __init__(self) -> None:
        self.stall_s = 0.0

    def memory(self, _field_name: str) -> int:
        return 1

    def forget_peak(self) -> None:
        pass

    def clean(self) -> None:
        self.stall_s = 5.0

    def experience(self) -> Experience:
        seen, self.stall_s = Experience(self.stall_s, 1, 0), 0.0
        return seen


def test_the_clean_up_counts() -> None:
    """Deleting a large queue is a part of the attack that filled it."""

    def attack(_target: AttackedServer, begin: Callable[[], None]) -> Outcome:
        begin()
        return Outcome()

    server = SlowToClean()
    verdict = _run(cast("AttackedServer", server), Attack("a", "-", "a", attack), cast("Bystander", server))
    assert verdict.faults == ["the bystander waited 5000 ms"]
