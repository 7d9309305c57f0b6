"""What operators ask for: from a request of the wire to the broker and back.

The keys of callers live in the config under ``auth:``, which no verb here shows or sets.
"""

from __future__ import annotations

from typing import Any, Final

from fairlane.assembly import PRIVATE_PREFIX, AsyncBroker
from fairlane.errors import Forbidden, InvalidArgument
from fairlane.gateway.caller import Caller
from fairlane.journal.events import rows
from fairlane.model.names import REDRIVE_AT
from fairlane.model.views import HookStatistics, HookTrial, QueueView, RedriveView
from fairlane.verbs.config import (
    ConfigValues,
    GetHookStatistics,
    ListConfig,
    ListThrottles,
    SetConfig,
    ThrottleList,
    TryHook,
)
from fairlane.verbs.dead_letters import GetRedrive, ListRedrives, Redrive, RedriveList, StopRedrive
from fairlane.verbs.journal import Events, ListReaders, ReaderList, ReadJournal, RemoveReader, SetReader
from fairlane.verbs.queues import (
    CreateQueue,
    DeleteQueue,
    GetStats,
    InspectQueue,
    ListQueues,
    MessageCount,
    PauseQueue,
    PurgeQueue,
    QueueList,
    ResumeQueue,
    UpdateQueue,
)
from fairlane.verbs.verb import Done, Shape

EVENTS_MAX: Final = 100_000
"""Events in one answer."""
_DONE: Final = Done()


# --------------------------------------------------------------------------------------------------------------- queues


async def stats(broker: AsyncBroker, request: GetStats, _: Caller) -> QueueView:
    """Return a queue in short, or with some of its keys."""
    return await broker.queue(request.queue, keys_max=request.keys_max)


async def create_queue(broker: AsyncBroker, request: CreateQueue, caller: Caller) -> Done:
    """Make a queue."""
    await broker.create_queue(request.queue, request.policy, by=caller.name)
    return _DONE


async def update_queue(broker: AsyncBroker, request: UpdateQueue, caller: Caller) -> Done:
    """Change a queue's policy."""
    await broker.update_queue(request.queue, request.policy, by=caller.name)
    return _DONE


async def delete_queue(broker: AsyncBroker, request: DeleteQueue, caller: Caller) -> Done:
    """Remove a queue."""
    await broker.delete_queue(request.queue, by=caller.name)
    return _DONE


async def pause(broker: AsyncBroker, request: PauseQueue, caller: Caller) -> Done:
    """Pause a queue or a key."""
    await broker.pause(request.queue, key=request.key, by=caller.name)
    return _DONE


async def resume(broker: AsyncBroker, request: ResumeQueue, caller: Caller) -> Done:
    """Resume a queue or a key."""
    await broker.resume(request.queue, key=request.key, by=caller.name)
    return _DONE


async def purge(broker: AsyncBroker, request: PurgeQueue, _: Caller) -> MessageCount:
    """Empty a queue."""
    return MessageCount(count=await broker.purge(request.queue))


async def queues(broker: AsyncBroker, _request: ListQueues, _: Caller) -> QueueList:
    """Return all queues."""
    return QueueList(queues=await broker.queues())


async def inspect(broker: AsyncBroker, request: InspectQueue, _: Caller) -> QueueView:
    """Return a queue with its keys."""
    return await broker.inspect(request.queue)


# ----------------------------------------------------------------------------------------------- dead letters and hooks


async def redrive(broker: AsyncBroker, request: Redrive, caller: Caller) -> RedriveView:
    """Start a redrive."""
    return await broker.redrive(
        request.queue,
        wanted=request.wanted,
        count=request.count,
        rate=request.rate,
        is_dry_run=request.is_dry_run,
        by=caller.name,
    )


async def redrive_view(broker: AsyncBroker, request: GetRedrive, _: Caller) -> RedriveView:
    """Return how far a redrive is."""
    return await broker.redrive_view(request.id.partition(REDRIVE_AT)[0])


async def redrives(broker: AsyncBroker, _request: ListRedrives, _: Caller) -> RedriveList:
    """Return all redrives."""
    return RedriveList(redrives=await broker.redrives())


async def stop_redrive(broker: AsyncBroker, request: StopRedrive, _: Caller) -> RedriveView:
    """Stop a redrive."""
    return await broker.stop_redrive(request.id.partition(REDRIVE_AT)[0])


async def try_hook(broker: AsyncBroker, request: TryHook, _: Caller) -> HookTrial:
    """Run a script on a sample."""
    if request.hook == "on_enqueue":
        return await broker.try_on_enqueue(
            request.queue, request.script, headers=request.headers, payload_size=request.payload_size
        )
    return await broker.try_on_failure(
        request.queue, request.script, headers=request.headers, attempts=request.attempts, error=request.error
    )


async def hook_statistics(broker: AsyncBroker, request: GetHookStatistics, _: Caller) -> HookStatistics:
    """Return how scripts have done."""
    return await broker.hook_statistics(request.queue)


# --------------------------------------------------------------------------------------------------- config and journal


async def set_config(broker: AsyncBroker, request: SetConfig, caller: Caller) -> Done:
    """Set config values, all or none."""
    if any(key.startswith(PRIVATE_PREFIX) for key in request.values):
        raise Forbidden(f"What begins with {PRIVATE_PREFIX} belongs to the server; keys are made with keys/create.")
    await broker.set_config_many(request.values, by=caller.name)
    return _DONE


async def list_config(broker: AsyncBroker, request: ListConfig, _: Caller) -> ConfigValues:
    """Return config values."""
    values = await broker.list_config(request.prefix)
    return ConfigValues(values={key: value for key, value in values.items() if not key.startswith(PRIVATE_PREFIX)})


async def throttles(broker: AsyncBroker, _request: ListThrottles, _: Caller) -> ThrottleList:
    """Return throttles."""
    return ThrottleList(throttles=await broker.throttles())


async def read_journal(broker: AsyncBroker, request: ReadJournal, _: Caller) -> Events:
    """Return events of the journal."""
    if request.count > EVENTS_MAX:
        raise InvalidArgument(f"One request has at most {EVENTS_MAX} events, not {request.count}.")
    slice_ = await broker.read_journal(request.after, count=request.count)
    events = [event for page in slice_.pages for event in rows(page) if event["sequence"] > request.after]
    return Events(events=[without_secret(event) for event in events], position=slice_.position)


def without_secret(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event without the value of a config key that nobody may see."""
    if event["kind"] == "config_set" and event["name"].startswith(PRIVATE_PREFIX):
        return {name: value for name, value in event.items() if name != "value"}
    return event


async def set_reader(broker: AsyncBroker, request: SetReader, _: Caller) -> Done:
    """Register a reader, or say how far it is."""
    await broker.set_reader(request.name, request.position)
    return _DONE


async def remove_reader(broker: AsyncBroker, request: RemoveReader, _: Caller) -> Done:
    """Remove a reader."""
    await broker.remove_reader(request.name)
    return _DONE


async def readers(broker: AsyncBroker, _request: ListReaders, _: Caller) -> ReaderList:
    """Return the readers."""
    return ReaderList(readers=await broker.readers())


async def alone(_broker: AsyncBroker, _request: Shape, _: Caller) -> Done:
    """Refuse what only a node of a cluster can do."""
    raise InvalidArgument("This server is no node of a cluster: it was started without a name for its node.")
