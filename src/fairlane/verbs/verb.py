"""What a verb is: the base classes of requests and answers, and the facts that each verb states about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, get_args

import msgspec

A_co = TypeVar("A_co", covariant=True)
R = TypeVar("R", bound="Request[Any]")
Right = Literal["produce", "consume", "observe", "admin"]
"""What an API key may do: see ``INCLUDED_IN``."""
INCLUDED_IN: Final[Mapping[Right, frozenset[Right]]] = {
    "produce": frozenset(("produce", "admin")),
    "consume": frozenset(("consume", "admin")),
    "observe": frozenset(("observe", "consume", "admin")),
    "admin": frozenset(("admin",)),
}
"""The rights that include a right. Who may consume sees what observers see, and more: payloads."""
About = Literal["queue", "group", "every", "message"]
"""Which queues the caller needs the right on: the queue that the request names, or every queue.

``group`` names a queue but concerns the whole group of that queue, so it needs the right on every queue too.
``message`` names a message: its producers may ask about it, each for the fairness keys of its grant, and so may the
consumers of its queue.
"""
Repeat = Literal["never", "deduplicated", "always"]
"""Whether a client may send a request again when it does not know what came of it.

``always`` holds for reads, and for verbs whose second call has the same result as the first. ``deduplicated`` holds if
every message of the request has a dedup id, or its producer has numbered them.
"""
Spread = Literal["by_key", "by_id", "any", "in_order", "all", "first", "own"]
"""How a request for a split queue reaches its partitions.

``by_key`` and ``by_id`` divide the items over partitions; ``any`` asks partitions until one answers; ``in_order`` reads
one after the other; ``all`` asks each and merges the answers; ``first`` asks the first partition, which has what the
queue has once; ``own`` marks verbs that handle partitions themselves.
"""
AnyAnswer: TypeAlias = Any
"""The answer of a verb, where which verb it is is known only at run time."""
Service = Literal["Broker", "Admin", "Batches"]
"""The gRPC service that has the method of a verb."""


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The base of requests and answers: fields have names, and unknown ones are refused."""


class Request(Shape, Generic[A_co], frozen=True, kw_only=True):
    """The base of requests. The type parameter is the answer, and ``Verb`` decorates each request class.

    Attributes:
        verb: the facts about the verb.
    """

    verb: ClassVar[Verb]


class Reply(Protocol):
    """Where an answer goes. ``asyncio`` and ``concurrent`` futures are replies."""

    def done(self) -> bool:
        """Return whether the caller has its answer, or gave up."""

    def set_result(self, result: AnyAnswer, /) -> None:
        """Give the answer."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Refuse."""


class Done(Shape, frozen=True, kw_only=True):
    """An answer without content: the request has been carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """The facts about one verb, as the decorator of its request class.

    Attributes:
        name: the verb's name in the SDK and on the stream.
        path: the HTTP path below ``/v1``.
        aliases: other HTTP paths of the verb, each with the fields of the request that it fixes.
        right: the right that the caller needs.
        about: the queues that it needs the right on.
        repeat: whether a client may repeat it when the answer was lost.
        spread: how it reaches the partitions of a split queue; None if it cannot be asked of the whole queue.
        is_followed: whether clients ask the partitions themselves once they know how the queue is split.
        is_new_work: whether a server that shuts down refuses it.
        may_create: whether it creates a queue that does not exist where a template says so.
        is_look: whether it changes no message but may have a large answer, so that few run at once on a connection, and
            a client that does not read gets an error instead.
        is_secret: whether the answer holds a secret that must not be cached.
        service: the gRPC service that has its method.
        command: the name of its command in the CLI, where one exists.
        request: the request class.
        answer: the answer class: the type parameter of the request class.
        method: the name of the gRPC method, which is that of the request class.
    """

    name: str
    path: str
    right: Right
    about: About = "queue"
    repeat: Repeat = "never"
    spread: Spread | None = None
    is_followed: bool = False
    is_new_work: bool = False
    may_create: bool = False
    is_look: bool = False
    is_secret: bool = False
    service: Service = "Admin"
    aliases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    command: str | None = None
    request: type[Request[Any]] = field(init=False)
    answer: type[msgspec.Struct] = field(init=False)
    method: str = field(init=False)

    @property
    def rights(self) -> tuple[Right, ...]:
        """The rights of which the caller needs one, apart from ``admin``."""
        return (self.right, "consume") if self.about == "message" else (self.right,)

    def __call__(self, request: type[R]) -> type[R]:
        """Attach the verb to its request class."""
        bases: Final = request.__orig_bases__  # type: ignore[attr-defined]  # Generic sets it
        object.__setattr__(self, "request", request)
        object.__setattr__(self, "answer", get_args(bases[0])[0])
        object.__setattr__(self, "method", request.__name__)
        request.verb = self
        return request
