"""Which player plays a recording: the array twin where it is exact and fast, else the kernel.

The twin is trusted only after it has decided every hand-out of the journal again, and has played the beginning of the
recording like the kernel, in this very run.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from fairlane.spark.whatif.fleet import play
from fairlane.spark.whatif.messages import Played, ReplayedMessage, messages_of
from fairlane.spark.whatif.recording import Recording
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.twin.steps import JournalSteps
from fairlane.spark.whatif.twin.support import obstacle_in

if TYPE_CHECKING:
    from fairlane.spark.whatif.twin.twin import ArrayTwin

PlayerName: TypeAlias = Literal["kernel", "twin"]
PlayerChoice: TypeAlias = Literal["auto", "kernel", "twin"]
"""The twin if it is faster, the kernel always, or the twin also where it is slower."""
MESSAGES_MIN: Final = 100_000
"""With fewer messages the kernel is done before the twin's code is loaded."""
_COMPARED: Final = 10_000
"""The number of messages that both play, so that what the journal does not show is compared as well."""
_NO_STEPS: Final = 1 << 62
_ORIGINAL: Final = Scenario(name=ORIGINAL)


class TwinVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the array twin may play a group of queues.

    Attributes:
        hand_outs: how many hand-outs of the journal it has decided again, all as the journal has them.
        obstacle: why it may not play; empty if it may.
    """

    hand_outs: int = 0
    obstacle: str = ""


def steps_from(choice: PlayerChoice) -> int:
    """Return from how many messages on the twin needs the events of a recording."""
    if choice == "kernel" or (choice == "auto" and find_spec("numba") is None):
        return _NO_STEPS
    return 0 if choice == "twin" else MESSAGES_MIN


class Players:
    """Plays a recording under one scenario after the other.

    Attributes:
        verdict: whether the array twin may play it.
    """

    def __init__(self, recording: Recording, steps: JournalSteps | None, choice: PlayerChoice) -> None:
        self._recording = recording
        self._items: list[ReplayedMessage] = []
        self._twin: ArrayTwin | None = None
        obstacle = _obstacle(recording, steps, choice)
        self.verdict = TwinVerdict(obstacle=obstacle)
        if not obstacle and steps is not None:
            self.verdict, self._twin = _tried(recording, steps)

    def play(self, scenario: Scenario) -> tuple[Played, PlayerName]:
        """Play the recording under a scenario, and return which player did."""
        played = None if self._twin is None else self._twin.play(scenario)
        if played is not None:
            return played, "twin"
        self._items = self._items or messages_of(self._recording)
        return play(self._recording, scenario, self._items), "kernel"

    def play_loaded(self, scenario: Scenario, recording: Recording) -> tuple[Played, PlayerName]:
        """Play the same recording under another load."""
        if self._twin is not None and not obstacle_in(recording):
            played = _twin_of(recording).play(scenario)
            if played is not None:
                return played, "twin"
        return play(recording, scenario, messages_of(recording)), "kernel"


def _twin_of(recording: Recording) -> ArrayTwin:
    # Only where it is used: it takes a second to load numba.
    from fairlane.spark.whatif.twin.twin import ArrayTwin

    return ArrayTwin(recording)


def _obstacle(recording: Recording, steps: JournalSteps | None, choice: PlayerChoice) -> str:
    """Return why the twin may not even be tried; empty if it may."""
    if choice == "kernel":
        return "the kernel was chosen"
    if choice == "auto" and find_spec("numba") is None:
        return "numba is not installed"
    if len(recording.key) < steps_from(choice):
        return f"fewer than {MESSAGES_MIN:,} messages"
    return obstacle_in(recording) or ("" if steps is not None else "messages that were taken out while they waited")


def _tried(recording: Recording, steps: JournalSteps) -> tuple[TwinVerdict, ArrayTwin | None]:
    """Compare the twin with the journal and the kernel, and return it if there is no difference."""
    from fairlane.spark.whatif.twin.compiler import CompilationFailed

    try:
        twin = _twin_of(recording)
        check = twin.check(_ORIGINAL, steps)
        if check is None:
            return TwinVerdict(obstacle="settings that hold messages back"), None
        if not check.is_exact:
            at = f"the hand-out at sequence {check.differs_at} came out otherwise"
            return TwinVerdict(obstacle=at), None
        first = beginning(recording, _COMPARED)
        if _twin_of(first).play(_ORIGINAL) != play(first, _ORIGINAL, messages_of(first)):
            return TwinVerdict(obstacle="the kernel plays the first messages otherwise"), None
    except CompilationFailed as error:
        return TwinVerdict(obstacle=f"numba could not compile it: {type(error).__name__}"), None
    return TwinVerdict(hand_outs=check.hand_outs), twin


def beginning(recording: Recording, count: int) -> Recording:
    """Return a recording of the first messages only."""
    if len(recording.key) <= count:
        return recording
    attempts = recording.first[count]
    columns = {name: getattr(recording, name)[:count] for name in _OF_MESSAGES}
    columns |= {name: getattr(recording, name)[:attempts] for name in _OF_ATTEMPTS}
    return replace(recording, **columns)


_OF_MESSAGES: Final = (
    *("queue", "at_ms", "key", "cost", "priority", "throttles", "due_ms", "deadline_ms", "weight", "cap", "order_key"),
    *("first", "leased_ms", "throttled_ms", "capped_ms", "paused_ms"),
)
_OF_ATTEMPTS: Final = ("hold_ms", "busy_ms", "end", "delay_ms", "settle")
