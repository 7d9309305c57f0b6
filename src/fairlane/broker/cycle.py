"""One cycle of the engine: what is committed together, and the part of the engine that its participants use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from fairlane.broker.bodies import Bodies
from fairlane.broker.measurements import EngineMetrics
from fairlane.broker.requests import AttachedConsumer, Call, HandOut, Read, StatusWaiter, Submission
from fairlane.core.commands import NOTHING_GIVEN, Command, Given
from fairlane.core.ledger import Ledger
from fairlane.core.schedule import Schedule
from fairlane.errors import FairlaneError
from fairlane.journal.records import AnyRecord
from fairlane.verbs.verb import Reply, Request

if TYPE_CHECKING:
    from fairlane.broker.hook_calls import HookCalls
    from fairlane.broker.refusals import CollectedRefusals
    from fairlane.broker.waiting.consumers import WaitingConsumers
    from fairlane.broker.waiting.pieces import WaitingPieces
    from fairlane.broker.waiting.producers import WaitingEnqueues
    from fairlane.broker.waiting.redrives import Redrives
    from fairlane.broker.waiting.script_lines import ScriptLines
    from fairlane.broker.waiting.sinks import WaitingSinks
    from fairlane.broker.waiting.ticks import Ticks

O = TypeVar("O")  # noqa: E741 - the outcome


class Cycle:
    """What one cycle commits, and what it answers and delivers once the commit is durable.

    Attributes:
        now_ms: the one instant of the cycle; time does not pass within it.
        sequence: the sequence of its first record.
        skipped: how many sequences it skips, since they may have been issued before; they are no events.
        pieces: the pieces of uploads that it stores.
        dropped: the chunks, workflow states and pieces that are no longer needed.
        reads: questions about the present, answered after everything else.
        watchers: callers that ask what becomes of messages, answered last.
        claims: the claims for which messages are yet to be picked.
        begun, ended: the consumers that were attached or detached in this cycle.
        postponed: further questions with large answers, and purges of large queues; the next cycles go on, one each.
        handed_out: how many messages it has leased; a cycle that handed out many bytes counts as full.
        handed_out_bytes: the payload bytes of leased messages, where they are large enough to matter.
        checked: how many of its records waiting producers have looked at for new capacity.
        frees_space: whether it deletes the last of many large bodies, so that the disk can have their space back.
        current: the request that is being decided.
        own: what the broker asked of itself; it is asked again if the cycle fails, since no caller would repeat it.
    """

    __slots__ = (
        *("answers", "begun", "bodies", "checked", "claims", "current", "dropped", "ended", "frees_space", "hand_outs"),
        *("handed_out", "handed_out_bytes", "now_ms", "own", "pieces", "postponed", "reads", "records", "sequence"),
        *("skipped", "watchers"),
    )

    def __init__(self, now_ms: int, sequence: int) -> None:
        # By hand, since a dataclass takes twice the time to make its lists, and a single enqueue has a cycle to itself.
        self.now_ms = now_ms
        self.sequence = sequence
        self.records: list[AnyRecord] = []
        self.bodies: list[tuple[int, bytes]] = []
        self.pieces: list[tuple[int, bytes]] = []
        self.dropped: list[int] = []
        self.answers: list[tuple[Reply, object]] = []
        self.reads: list[Read] = []
        self.watchers: list[StatusWaiter] = []
        self.postponed: list[Call | Read] = []
        self.hand_outs: list[HandOut] = []
        self.claims: list[Call] = []
        self.begun: list[AttachedConsumer] = []
        self.ended: list[AttachedConsumer] = []
        self.own: list[Submission] = []
        self.skipped = self.handed_out = self.handed_out_bytes = self.checked = 0
        self.frees_space = False
        self.current: Submission | None = None

    def answer(self, reply: Reply | None, outcome: object) -> None:
        """Answer with an outcome once the cycle is durable; an error is a refusal."""
        if reply is not None:
            self.answers.append((reply, outcome))


class Executor(Protocol):
    """The part of the engine that takes part in deciding: what is true, who is next, and how commands run."""

    @property
    def ledger(self) -> Ledger:
        """The current truth. Only ``execute`` changes it."""

    @property
    def schedule(self) -> Schedule:
        """What follows from the ledger and the time. Only ``execute`` and picking change it."""

    @property
    def bodies(self) -> Bodies:
        """The bodies of messages that are durable; those of the present cycle are not among them."""

    @property
    def refusals(self) -> CollectedRefusals:
        """The messages that limits kept out, to be recorded."""

    @property
    def hook_calls(self) -> HookCalls:
        """The hooks of queues, asked before a command is decided."""

    @property
    def script_lines(self) -> ScriptLines:
        """What waits for script time."""

    @property
    def consumers(self) -> WaitingConsumers:
        """The consumers that wait, and what they hold."""

    @property
    def producers(self) -> WaitingEnqueues:
        """The enqueues that wait for capacity."""

    @property
    def sinks(self) -> WaitingSinks:
        """The parts of batches that wait for capacity."""

    @property
    def ticks(self) -> Ticks:
        """The schedules that wait for their next tick."""

    @property
    def redrives(self) -> Redrives:
        """The redrives that run."""

    @property
    def pieces(self) -> WaitingPieces:
        """The pieces of uploads that wait for a commit."""

    @property
    def metrics(self) -> EngineMetrics:
        """Counts for operators; nothing depends on them."""

    def execute(
        self, command: Command[O] | Request[O], cycle: Cycle, given: Given = NOTHING_GIVEN
    ) -> O | FairlaneError:
        """Decide a request or command, apply its records, and return its outcome.

        Commands within a cycle see what the ones before them did. An exception before anything is applied leaves
        memory as it was.
        """

    def now_ms(self) -> int:
        """Return the present instant, which is later than that of the cycle while its commit becomes durable."""

    def submit(self, submission: Submission) -> None:
        """Add a request for the next cycle."""
