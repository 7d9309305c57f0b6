"""How the simulation's clients receive answers, and what they remember."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from zlib import crc32

from fairlane.broker.engine.engine import Engine
from fairlane.errors import FairlaneError, InternalError
from fairlane.model.message import Delivery, NewMessage
from fairlane.verbs.leases import Etag, ForwardedIds, LeasedMessages
from fairlane.verbs.messages import EnqueueResults, Results
from fairlane.verbs.methods.conversions import errors_of, ids_of
from fairlane.verbs.queues import MessageCount
from fairlane.verbs.verb import Done
from tests.kit.auditor.auditor import Auditor
from tests.kit.auditor.books import ProducerNumber, violated
from tests.kit.simulation.workload import Workload

_CONNECTIONS = 4


class World(Protocol):
    """The simulation as its clients see it."""

    workload: Workload
    auditor: Auditor
    engine: Engine

    def now_ms(self) -> int:
        """Return the broker's time."""

    def note(self, text: str) -> None:
        """Add a line to the trace."""

    def answering(self) -> None:
        """Run before each answer, because the process may die there."""


def outcome_of(answer: Any) -> Any:
    """Return the content of an answer: for batches a list of errors and results."""
    match answer:
        case EnqueueResults():
            return ids_of(answer.results)
        case Results():
            return [
                result.became or result.expires_ms if result.error is None else error
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
    """The reply of a request: it checks the answer at once."""

    def __init__(self, world: World, label: str, judge: Callable[[Any], None], *, until_ms: int = 0) -> None:
        self._world = world
        self._judge = judge
        self._is_done = False
        self.label = label
        self.source = crc32(label.encode()) % _CONNECTIONS
        """The connection of the client: the broker takes the requests of one in order, those of several as it likes."""
        self.until_ms = until_ms
        """When the answer is due."""

    def done(self) -> bool:
        """Return whether the client has stopped waiting."""
        return self._is_done

    def set_result(self, result: Any, /) -> None:
        """Receive the answer."""
        self._world.answering()
        self._is_done = True
        result = outcome_of(result)
        self._world.note(f"  {self.label} -> {result!r:.200}")
        if isinstance(result, InternalError):
            violated(f"{self.label} was answered {result!r}")
        self._judge(result)

    def set_exception(self, exception: BaseException, /) -> None:
        """Receive an error."""
        if not isinstance(exception, FairlaneError):
            violated(f"{self.label} was answered with {exception!r}")
        self.set_result(exception)

    def give_up(self) -> None:
        """Stop waiting."""
        self._is_done = True


@dataclass(slots=True, eq=False)
class Holding:
    """A lease that a client holds."""

    delivery: Delivery
    etag: str | None


@dataclass(slots=True, eq=False)
class Unclear:
    """An enqueue that may be repeated: its messages, and what number each has, if its producer numbers them."""

    queue: str
    messages: list[NewMessage]
    numbers: list[ProducerNumber | None]
