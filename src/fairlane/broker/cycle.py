"""A cycle of the engine: what happens together, and what is needed to take part in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from fairlane.broker.bodies import Bodies
from fairlane.broker.hook_calls import HookCalls
from fairlane.broker.measurements import EngineMetrics
from fairlane.broker.requests import Call, Consumer, HandOut, Read, Reply, Submission
from fairlane.core.commands import NOTHING_GIVEN, Command, Given
from fairlane.core.ledger import Ledger
from fairlane.core.schedule import Schedule
from fairlane.errors import FairlaneError
from fairlane.journal.records import AnyRecord
from fairlane.verbs.verb import Request

O = TypeVar("O")  # noqa: E741 - the outcome


@dataclass(slots=True)
class Cycle:
    """What is committed together, and what is answered and delivered once it is durable."""

    now_ms: int
    sequence: int
    records: list[AnyRecord] = field(default_factory=list)
    bodies: list[tuple[int, bytes]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    answers: list[tuple[Reply, object]] = field(default_factory=list)
    questions: list[Read] = field(default_factory=list)
    hand_outs: list[HandOut] = field(default_factory=list)
    claims: list[Call] = field(default_factory=list)
    """Those for which something is yet to be picked."""
    begun: list[Consumer] = field(default_factory=list)
    ended: list[Consumer] = field(default_factory=list)
    handed_out: int = 0
    looked_at: int = 0
    current: Submission | None = None
    own: list[Submission] = field(default_factory=list)

    def answer(self, reply: Reply | None, outcome: object) -> None:
        """Answer with an outcome, an error being a refusal, once the cycle is durable."""
        if reply is not None:
            self.answers.append((reply, outcome))


class Executor(Protocol):
    """What those need of the engine who take part in its cycles."""

    @property
    def ledger(self) -> Ledger:
        """What is true."""

    @property
    def schedule(self) -> Schedule:
        """Who is next."""

    @property
    def bodies(self) -> Bodies:
        """Headers and payloads."""

    @property
    def hook_calls(self) -> HookCalls:
        """Hooks and dice."""

    @property
    def meters(self) -> EngineMetrics:
        """What is measured."""

    def execute(
        self, command: Command[O] | Request[O], cycle: Cycle, given: Given = NOTHING_GIVEN
    ) -> O | FairlaneError:
        """Decide a request or command and apply its records, within a cycle. Returns its outcome."""

    def run_command(self, call: Call, cycle: Cycle) -> object:
        """Ask the hooks about a request, decide it, and apply its records. Returns its outcome."""

    def submit(self, asked: Submission) -> None:
        """Put a request in line for the next cycle."""
