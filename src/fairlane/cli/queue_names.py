"""Names of queues, which a shell can complete."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from fairlane.cli.session import DEFAULT_SERVER, Place, connect

_TIMEOUT_S = 2.0


class QueueName(click.ParamType):  # type: ignore[type-arg] # older versions of click know no argument
    """The name of a queue; whether there is one is for the broker to say."""

    name = "queue"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the queues of the server that begin so; none if it can't be asked."""
        options = ctx.find_root().params
        if options.get("data") is not None:  # a folder that is not there would be made
            return []
        place = Place(
            server=options.get("server") or DEFAULT_SERVER, api_key=options.get("api_key"), timeout_s=_TIMEOUT_S
        )
        try:
            with connect(place) as door:
                names = [view.name for view in door.queues()]
        except Exception:  # noqa: BLE001 - whoever presses a key wants no error in the middle of a line
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


QUEUE = click.argument("queue", type=QueueName())
"""The queue a command is about."""
