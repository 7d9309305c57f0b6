"""How the simulation's clients get answers, and what they keep of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from fairlane.broker.engine.engine import Engine
from fairlane.errors import FairlaneError, InternalError
from fairlane.model.message import Delivery, NewMessage
from fairlane.verbs.leases import Etag, ForwardedIds, LeasedMessages
from fairlane.verbs.messages import EnqueueResults, Results
from fairlane.verbs.methods.conversions import errors_of, ids_of
from fairlane.verbs.queues import MessageCount
from fairlane.verbs.verb import Done
from tests.kit.auditor.auditor import Auditor
from tests.kit.auditor.books import violated
from tests.kit.simulation.workload import Workload


class World(Protocol):
    """What clients see of the simulation."""

    workload: Workload
    auditor: Auditor
    engine: Engine

    def now_ms(self) -> int:
        """Return the broker's time."""

    def note(self, text: str) -> None:
        """Write into the trace."""

    def answering(self) -> None:
        """Come by before each answer, for the process may die there."""


def outcome_of(answer: Any) -> Any:
    """Return what an answer says, without the struct around it: for batches an error, or what came of it, for each."""
    match answer:
        case EnqueueResults():
            return ids_of(answer.results)
        case Results():
            return [
                result.expires_ms if result.error is None else error
                for result, error in zip(answer.results, errors_of(answer.results), strict=True)
            ]
        case LeasedMessages():
            return answer.deliveries
        case ForwardedIds():
            return answer.ids
        case MessageCount():
            return answer.count
        case Etag():
            return answer.etag
        case Done():
            return None
    return answer


class Answer:
    """Where an answer goes: it is judged at once."""

    def __init__(self, world: World, label: str, judge: Callable[[Any], None], *, until_ms: int = 0) -> None:
        self._world = world
        self._judge = judge
        self._is_done = False
        self.label = label
        self.until_ms = until_ms
        """Until when it may remain unanswered."""

    def done(self) -> bool:
        """Tell whether nobody waits any more."""
        return self._is_done

    def set_result(self, result: Any, /) -> None:
        """Give the answer."""
        self._world.answering()
        self._is_done = True
        result = outcome_of(result)
        self._world.note(f"  {self.label} -> {result!r:.200}")
        if isinstance(result, InternalError):
            violated(f"{self.label} was answered {result!r}")
        self._judge(result)

    def set_exception(self, exception: BaseException, /) -> None:
        """Refuse."""
        if not isinstance(exception, FairlaneError):
            violated(f"{self.label} was answered with {exception!r}")
        self.set_result(exception)

    def give_up(self) -> None:
        """Wait no longer."""
        self._is_done = True


@dataclass(slots=True, eq=False)
class Holding:
    """A lease in a client's hands."""

    delivery: Delivery
    etag: str | None


@dataclass(slots=True, eq=False)
class Unclear:
    """An enqueue that may have happened or not."""

    queue: str
    messages: list[NewMessage]
