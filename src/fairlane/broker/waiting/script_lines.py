"""Requests that wait for script time.

Theory of operation
-------------------
A request whose decision needs the answers of a script is decided when all its answers are there, and not before.
Usually that is at once. If the script time of its queue in this cycle ends first, the request *waits*, with the answers
it has, and goes on in the next cycle. Meanwhile the cycle commits and answers others, and the loop does other things.

*Nothing of a waiting request has been decided.* It has no records, takes no room, and its dedup ids are unknown. So it
is decided as a whole in one cycle, by the same code as one that never waited, with the same atomicity. A caller that
gives up, or a store that fails meanwhile, leaves nothing to undo: the request is dropped in the one case, and goes on
after recovery in the other. What it is given is part of its command, so recovery and simulations run no script for it.

*Order.* A request stands in a line for each queue that its messages go to, and goes on when it is the first in all of
them. New requests for such a queue join the line whether or not they need a script. So no enqueue overtakes another to
the same queue. All requests join all their lines at once, so two can't wait for each other.
Failed attempts have lines of their own: a batch of new messages does not hold up retries.

*Fairness.* A cycle gives each queue at most its part of the script time, and the lines take turns in being first.

*Own requests.* Leases that ended are failed attempts that no caller asks for. A recovery drops them from the lines: it
finds the leases again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, cast

from fairlane.broker.auto_create import still_missing
from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.hook_calls import Enquiry
from fairlane.broker.requests import Call
from fairlane.core.commands import Given
from fairlane.model.message import NewMessage
from fairlane.verbs.batches import Stage
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.verb import Reply

Line: TypeAlias = tuple[str, str]
"""What is waited for, and the queue."""
CHANGES: Line = ("changes", "")
"""The line of queues that are to be created or changed with scripts that have to be compiled."""
Decide: TypeAlias = Callable[[Executor, Call, Given, Cycle, int], None]
"""Decides a request with what it is given, and answers it. The last argument is the instant at which it came."""


class ScriptWork(ABC):
    """Something that needs script time before it can be decided.

    Attributes:
        call: the request.
        lines: the lines that it stands in while it waits.
    """

    call: Call
    lines: Sequence[Line]

    @property
    def reply(self) -> Reply | None:
        """Where the answer goes."""
        return self.call.reply

    @property
    def is_over(self) -> bool:
        """Whether its caller has given up."""
        return self.call.reply is not None and self.call.reply.done()

    @abstractmethod
    def advance(self, executor: Executor, cycle: Cycle) -> bool:
        """Run scripts while there is time, and return whether it can be decided."""

    @abstractmethod
    def decide(self, executor: Executor, cycle: Cycle) -> None:
        """Decide it, and answer."""


class HookedRequest(ScriptWork):
    """A request about whose messages scripts are asked."""

    __slots__ = ("_assemble", "_came_ms", "_creates", "_decide", "_enquire", "_enquiries", "call", "lines")

    def __init__(
        self,
        call: Call,
        *,
        lines: Sequence[Line],
        enquire: Callable[[Executor], Sequence[Enquiry]],
        assemble: Callable[[Sequence[Enquiry]], Given],
        decide: Decide,
        came_ms: int,
        creates: Sequence[str] = (),
    ) -> None:
        """Create it.

        Args:
            call: the request.
            lines: the lines that it stands in while it waits.
            enquire: returns what scripts are asked, once it is the first in its lines.
            assemble: returns what the decision is given, from what they have answered.
            decide: decides and answers the request.
            came_ms: when it came.
            creates: the queues that it creates if they are missing and a template says so. While it waits they may be
                missing again: the cycle that created them has failed.
        """
        self.call = call
        self.lines = lines
        self._enquire = enquire
        self._enquiries: Sequence[Enquiry] | None = None
        self._assemble = assemble
        self._decide = decide
        self._came_ms = came_ms
        self._creates = creates

    def advance(self, executor: Executor, cycle: Cycle) -> bool:
        """Ask the scripts, one queue after the other."""
        for queue in self._creates:
            still_missing(executor, queue, cycle, self.call.by)
        if self._enquiries is None:
            self._enquiries = self._enquire(executor)
        advance, ledger, now_ms = executor.hook_calls.advance, executor.ledger, cycle.now_ms
        return all(advance(enquiry, ledger, now_ms) for enquiry in self._enquiries)

    def decide(self, executor: Executor, cycle: Cycle) -> None:
        """Decide the request with what the scripts have answered."""
        self._decide(executor, self.call, self._assemble(self._enquiries or ()), cycle, self._came_ms)


class ScriptLines:
    """The lines of everything that waits for script time. See the module's theory of operation.

    Attributes:
        lines: what waits, by line, the first in front. A line that is empty is not there.
    """

    def __init__(self) -> None:
        self.lines: dict[Line, deque[ScriptWork]] = {}

    def take(self, executor: Executor, work: ScriptWork, cycle: Cycle) -> None:
        """Decide what has just come, or let it wait behind what has come before."""
        is_behind = self.lines and any(line in self.lines for line in work.lines)
        if not is_behind and work.advance(executor, cycle):
            work.decide(executor, cycle)
            return
        for line in work.lines:
            self.lines.setdefault(line, deque()).append(work)

    def heads(self) -> Iterator[ScriptWork]:
        """Yield what is the first in all its lines, and what comes after it if it is removed meanwhile."""
        for line in list(self.lines):
            while line in self.lines:
                work = self.lines[line][0]
                if any(self.lines[other][0] is not work for other in work.lines):
                    break
                if work.is_over:
                    self.remove(work)
                    continue
                yield work
                if line in self.lines and self.lines[line][0] is work:
                    break
        if self.lines:
            first = next(iter(self.lines))
            self.lines[first] = self.lines.pop(first)  # the next cycle begins with another

    def remove(self, work: ScriptWork) -> None:
        """Take something out of its lines, where it is the first, if it still is."""
        for name in work.lines:
            line = self.lines.get(name)
            if line is not None and line[0] is work:
                line.popleft()
                if not line:
                    del self.lines[name]

    def forget_own(self) -> None:
        """Forget what no caller has asked for: after a recovery the leases that have ended are found again."""
        for name, line in list(self.lines.items()):
            self.lines[name] = kept = deque(work for work in line if work.reply is not None)
            if not kept:
                del self.lines[name]

    def dismiss(self) -> list[Reply]:
        """Forget everything that waits, and return the replies. Nothing of it has been done."""
        everything = {id(work): work for line in self.lines.values() for work in line}
        self.lines = {}
        return [work.reply for work in everything.values() if work.reply is not None]


def take_new_messages(executor: Executor, call: Call, decide: Decide, cycle: Cycle) -> bool:
    """Decide a request with new messages for one queue once its script has answered.

    Return False if there is nothing to wait for: no script, and no request that waits for one.
    """
    request = cast("Enqueue | Stage", call.request)
    queue, line = executor.ledger.queues.get(request.queue), ("on_enqueue", request.queue)
    if (queue is None or queue.policy.on_enqueue is None) and line not in executor.script_lines.lines:
        return False
    work = HookedRequest(
        call,
        lines=(line,),
        enquire=lambda later: about_queues(later, {request.queue: request.messages}),
        assemble=lambda enquiries: enquiries[0].given(call.given) if enquiries else call.given,
        decide=decide,
        came_ms=cycle.now_ms,
        creates=(request.queue,) if request.verb.may_create else (),
    )
    executor.script_lines.take(executor, work, cycle)
    return True


def about_queues(executor: Executor, messages: Mapping[str, Sequence[NewMessage]]) -> list[Enquiry]:
    """Return what scripts are asked about new messages, by queue; nothing for queues without a script."""
    ledger, about = executor.ledger, executor.hook_calls.about_messages
    found = ((ledger.queues.get(queue), news) for queue, news in messages.items())
    return [about(ledger, queue, news) for queue, news in found if queue is not None and queue.policy.on_enqueue]
