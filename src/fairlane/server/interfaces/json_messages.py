"""New messages in JSON requests, whose payload may be a JSON value in place of base64."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from fairlane.errors import InvalidArgument
from fairlane.model.bounds import Batch, ByQueue
from fairlane.model.message import NewMessage
from fairlane.verbs.fan_outs import FanOut
from fairlane.verbs.leases import Forward
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.verb import Request

MARK: Final = b'"json"'
"""A request without these bytes has no such message, and is decoded as usual."""


class JsonMessage(NewMessage, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A message as a producer sends it in JSON.

    Attributes:
        json: a JSON value that becomes the payload, byte for byte; ``payload`` must be missing then.
    """

    json: msgspec.Raw | UnsetType = UNSET

    def plain(self) -> NewMessage:
        """Return the message as the broker gets it."""
        fields = {name: getattr(self, name) for name in NewMessage.__struct_fields__}
        if self.json is UNSET:
            return NewMessage(**fields)
        if self.payload:
            raise InvalidArgument("A message has both payload and json; send only one of them.")
        return NewMessage(**fields | {"payload": bytes(self.json)})


def _form(request: type[Request[Any]], messages: object, **others: object) -> type[Request[Any]]:
    """Return the JSON form of a request: the same, with messages of another type."""
    fields: list[Any] = [("messages", messages), *others.items()]
    told = {"__doc__": request.__doc__}
    form = msgspec.defstruct(
        f"Json{request.__name__}", fields, bases=(request,), namespace=told, kw_only=True, frozen=True
    )
    return cast("type[Request[Any]]", form)


JSON_FORMS: Final[dict[type, type[Request[Any]]]] = {
    Enqueue: _form(Enqueue, Batch[JsonMessage]),
    Forward: _form(Forward, ByQueue[Batch[JsonMessage]]),
    FanOut: _form(FanOut, ByQueue[Batch[JsonMessage]], then=JsonMessage),
}
"""The requests that have another form in JSON."""


def plain_request(request: Request[Any], shape: type[Request[Any]]) -> Request[Any]:
    """Return a request in its usual form."""
    fields = {name: getattr(request, name) for name in shape.__struct_fields__}
    messages: list[JsonMessage] | dict[str, list[JsonMessage]] = fields["messages"]
    if isinstance(messages, dict):
        plain: object = {queue: [message.plain() for message in news] for queue, news in messages.items()}
    else:
        plain = [message.plain() for message in messages]
    then = fields.get("then")
    return shape(**fields | {"messages": plain} | ({"then": then.plain()} if isinstance(then, JsonMessage) else {}))
