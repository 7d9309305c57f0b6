"""Questions about one message in a cluster: its queue says where to ask, and without that its id does.

An id names the journal that gave it, so a broker knows whether a message is one of its own. Which node has that broker
the id does not say: without a queue, all nodes are asked until one knows it.
"""

from __future__ import annotations

import msgspec

from fairlane.cluster.gateway import ClusterGateway
from fairlane.errors import MessageNotFound
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import CallContext
from fairlane.gateway.protocol import Answer
from fairlane.model.partitions import partition_name, partition_of_id, queue_of
from fairlane.model.status import StatusView
from fairlane.verbs.status import Watching


async def look_up(gateway: ClusterGateway, request: Watching, caller: Caller, context: CallContext) -> Answer:
    """Answer a question about a message where the message is."""
    if request.queue is None:
        return _as_whole(await _search(gateway, request, caller, context))
    split = gateway.split_of(request.queue)
    queue = request.queue
    if split is not None:
        at = partition_of_id(request.id)
        queue = partition_name(queue, at if at < split.made else 0)
    asking = msgspec.structs.replace(context, follows=False)
    return _as_whole(await gateway.router.at(queue, msgspec.structs.replace(request, queue=queue), caller, asking))


async def _search(gateway: ClusterGateway, request: Watching, caller: Caller, context: CallContext) -> Answer:
    for broker in gateway.brokers():
        if broker.may_know(request.id):
            return await broker.call(request, by=caller.name, producer=caller.limits_on(request))
    refusal = MessageNotFound(f"No message {request.id!r:.60} is known to the nodes that could be reached.")
    if context.is_forwarded:
        raise refusal
    for address in gateway.other_addresses():
        try:
            return await gateway.router.ask(address, request, caller, context)
        except MessageNotFound:
            continue
    raise refusal


def _as_whole(answer: Answer) -> Answer:
    """Return the status of a message of a partition under the name of the whole queue."""
    return msgspec.structs.replace(answer, queue=queue_of(answer.queue)) if isinstance(answer, StatusView) else answer
