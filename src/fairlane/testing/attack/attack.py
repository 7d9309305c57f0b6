"""What an attack is, and how its outcome is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fairlane.testing.attack.target import AttackedServer

STALL_S_MAX: Final = 0.1
MEMORY_RATIO_MAX: Final = 2.0
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attack achieved.

    Attributes:
        attempted: the number of hostile requests, connections or messages.
        refused: the number of them that the server refused or closed.
        harm: what the attack did to another tenant; empty if it did nothing.
        skipped: why the attack was not tried; empty if it was.
    """

    attempted: int = 0
    refused: int = 0
    harm: str = ""
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack.

    Attributes:
        name: the name to choose it by.
        finding: the number of the finding of the security review that it repeats.
        title: what is tried, in a few words.
        run: tries it. It calls ``begin`` once its preparations are done: stall and memory count from there.
        needs_keys: whether it is about rights, so that it means nothing where authentication is disabled.
    """

    name: str
    finding: str
    title: str
    run: Callable[[AttackedServer, Callable[[], None]], Outcome]
    needs_keys: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome with what the bystander and the server's memory showed meanwhile.

    Attributes:
        stall_s: the longest time that the bystander waited for one call.
        failures: how many calls of the bystander failed.
        memory_before: the server's memory when the attack began; None if unknown.
        memory_peak: the most memory that it had until the attack ended; None if unknown.
    """

    attack: Attack
    outcome: Outcome
    stall_s: float = 0.0
    failures: int = 0
    memory_before: int | None = None
    memory_peak: int | None = None

    @property
    def faults(self) -> list[str]:
        """Why the attack was not held off; empty if it was."""
        faults = [self.outcome.harm] if self.outcome.harm else []
        if self.stall_s > STALL_S_MAX:
            faults.append(f"the bystander waited {self.stall_s * 1000:.0f} ms")
        if self.failures:
            faults.append(f"{self.failures} calls of the bystander failed")
        if self.memory_before and self.memory_peak and self.memory_peak > MEMORY_RATIO_MAX * self.memory_before:
            faults.append(f"memory grew by {(self.memory_peak - self.memory_before) / _MIB:.0f} MiB")
        return faults

    @property
    def memory(self) -> str:
        """The memory before and at its peak, in MiB."""
        if self.memory_before is None or self.memory_peak is None:
            return "-"
        return f"{self.memory_before / _MIB:.0f} → {self.memory_peak / _MIB:.0f}"
