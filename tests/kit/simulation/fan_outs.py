"""The simulation's fan-outs: producers that fan out, and repeat themselves when an answer is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from fairlane.errors import FairlaneError, StoreFailed
from fairlane.model.message import NewMessage
from fairlane.verbs.fan_outs import FannedOutIds, FanOut
from tests.kit.auditor.books import violated
from tests.kit.auditor.fan_outs import told_fanned_out
from tests.kit.simulation.schedules import Planners


@dataclass
class FanOutProducers(Planners):
    """Clients that fan out."""

    fan_outs: list[FanOut] = field(default_factory=list)
    """Those with an unknown outcome, and some of the others."""
    names: int = 0

    def fan_out(self) -> None:
        """Fan out to messages of one queue or two, or repeat a request."""
        draw = self.world.workload
        if self.fan_outs and draw.happens(0.3):
            self._ask_to_fan_out(self.fan_outs.pop(draw.chance.randrange(len(self.fan_outs))))
            return
        self.names += not draw.happens(0.2)  # a name may be that of an earlier fan-out, of this tenant or another
        queue = self._queue()
        queues = {queue, self._queue()} if draw.happens(0.3) else {self._queue()}
        members = {each: self._members() for each in sorted(queues)} if draw.happens(0.9) else {}
        request = FanOut(
            queue=queue,
            name=f"f{self.names}",
            messages=members,
            then=self._members()[0],
            on_failure=draw.one_of("dead", "run"),
        )
        self._ask_to_fan_out(request)

    def _members(self) -> list[NewMessage]:
        return [replace(message, dedup_id=None, unique_key=None) for message in self.world.workload.messages()[:5]]

    def _ask_to_fan_out(self, request: FanOut) -> None:
        auditor = self.world.auditor
        for queue, messages in (*request.messages.items(), (request.queue, [request.then])):
            for message in messages:
                auditor.note_sent(queue, message)

        since = auditor.books.next_sequence

        def judge(outcome: Any) -> None:
            if isinstance(outcome, StoreFailed) or self.world.workload.happens(0.1):
                self.fan_outs.append(request)
            if isinstance(outcome, FannedOutIds):
                told_fanned_out(auditor.books, request, outcome, since=since)
            elif not isinstance(outcome, FairlaneError):
                violated(f"{request} was answered {outcome}")

        self.do(f"fan out {request.name} to {request.queue}", request, judge)
