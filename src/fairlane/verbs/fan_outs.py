"""Fan-out and join: messages that are enqueued together, and one that waits until all of them have ended."""

from __future__ import annotations

from typing import Literal

from fairlane.model.bounds import Batch, ByQueue
from fairlane.model.message import NewMessage
from fairlane.verbs.verb import Request, Shape, Verb

OnFailure = Literal["dead", "run"]


class FannedOutIds(Shape, frozen=True, kw_only=True):
    """The ids of the messages of a fan-out.

    Attributes:
        id: the continuation.
        ids: the members, in order.
        is_repeat: whether nothing was enqueued, because a fan-out of this name is known: these are its ids.
    """

    id: str
    ids: list[str]
    is_repeat: bool = False


@Verb(
    name="fan_out",
    path="queue/fan_out",
    right="produce",
    repeat="always",
    is_new_work=True,
    service="Broker",
)
class FanOut(Request[FannedOutIds], frozen=True, kw_only=True):
    """Enqueue messages, the members, and one that waits until all of them have ended; in one commit or not at all.

    The continuation enters its queue once. A member has ended when it is acknowledged, is a dead letter, or is removed;
    what it forwards takes its place. In a cluster all queues must be in one group. The header ``fairlane-before`` of
    the continuation names the members: a JSON list of runs of consecutive ids, each with its queue, its first id and a
    count.

    Attributes:
        queue: the queue of the continuation.
        name: what the producer calls the fan-out. While it is known, which is until ``dedup_window_ms`` after its end,
            the same name of the same tenant is answered with the same ids. The tenant is that of the continuation.
        messages: the members, by queue.
        then: the continuation.
        on_failure: what becomes of the continuation if a member was not acknowledged: it becomes a dead letter
            (``dead``), or runs all the same (``run``).
    """

    queue: str
    name: str
    messages: ByQueue[Batch[NewMessage]]
    then: NewMessage
    on_failure: OnFailure = "dead"
