"""What observers see: queues, messages and reasons, read from ledger and schedule without changing either."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from fairlane.broker.bodies import Bodies
from fairlane.broker.views.deliveries import dead_letter_of
from fairlane.broker.waiting.consumers import WaitingConsumers
from fairlane.broker.waiting.redrives import Redrives
from fairlane.core.decide.retries import shared_dlq
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.core.schedule import Schedule
from fairlane.core.states.aftermath import Aftermath
from fairlane.errors import InvalidArgument, MessageNotFound, QueueNotFound
from fairlane.model.claims import ConsumerView
from fairlane.model.ids import number_text
from fairlane.model.message import PRIORITY_NAMES, Key, MessageStatus, MessageView, canonical
from fairlane.model.names import dlq_of, is_dlq
from fairlane.model.staging import SinkView
from fairlane.model.views import Explained, KeyView, QueueView, StreamView, ThrottleView
from fairlane.scheduler.survey import KeyState
from fairlane.scheduler.token_bucket import Bucket, burst_of

_NO_AFTERMATH: Final = Aftermath()

KEYS_SHOWN = 100
THROTTLES_SHOWN = 100


class Looked(Protocol):
    """Where observers look."""

    @property
    def ledger(self) -> Ledger:
        """What is true."""

    @property
    def schedule(self) -> Schedule:
        """Who is next."""

    @property
    def consumers(self) -> WaitingConsumers:
        """Who waits for messages."""

    @property
    def redrives(self) -> Redrives:
        """Which dead letters move."""


def known(ledger: Ledger, name: str) -> Queue:
    """Return a queue. Raises QueueNotFound if there is none of this name."""
    queue = ledger.queues.get(name)
    if queue is None:
        raise QueueNotFound(f"Queue {name!r:.150} does not exist.")
    return queue


def known_message(ledger: Ledger, queue: str, message_id: str) -> Message:
    """Return a message. Raises QueueNotFound or MessageNotFound if there is none."""
    message = known(ledger, queue).messages.get(ledger.ids.number_of(message_id) or 0)
    if message is None:
        raise MessageNotFound(f"Queue {queue!r} has no message {message_id!r:.60}.")
    return message


def queue_view(engine: Looked, name: str) -> QueueView:
    """Return a queue in short. Costs the same whatever the queue holds."""
    ledger, waiting = engine.ledger, engine.consumers
    queue = known(ledger, name)
    dlq = ledger.queues.get(place := shared_dlq(ledger, queue) or dlq_of(name))
    oldest = queue.messages.oldest()
    return QueueView(
        name=name,
        policy=queue.policy,
        created_ms=queue.created_ms,
        is_paused=queue.is_paused,
        paused_keys=tuple(sorted(queue.paused_keys, key=str)),
        waiting=len(queue.messages) - queue.leased,
        leased=queue.leased,
        size=queue.size,
        dead=0 if dlq is None else len(dlq.messages) if is_dlq(dlq.name) else dlq.dead_letters,
        oldest_ms=oldest.enqueued_ms if oldest is not None else None,
        active_keys=None,
        waiters=waiting.waiting(name, only_polls=True),
        consumers=len(waiting.attached.get(name, ())),
        claimed=queue.claimed,
        staged=len(queue.staged),
        refused=queue.refused,
        dead_letters=queue.dead_letters,
        dead_letter_queue=name if is_dlq(name) else place,
        redrives=engine.redrives.running_in((name,) if dlq is None else (name, dlq.name)),
    )


def queue_details(
    engine: Looked,
    name: str,
    now_ms: int,
    *,
    keys_max: int = KEYS_SHOWN,
    wanted: Callable[[Key], bool] | None = None,
) -> QueueView:
    """Return a queue with its keys and throttles. Costs time in proportion to its keys, not to its messages."""
    view = queue_view(engine, name)
    queue, schedule = engine.ledger.queues[name], engine.schedule
    survey = schedule.kernel(name).survey(keys_max, now_ms, wanted=wanted)
    keys = tuple(_key_view(engine, queue, state, now_ms) for state in survey.keys)
    buckets = [bucket for bucket in schedule.throttles if bucket.name in survey.throttles]
    return msgspec.structs.replace(
        view,
        active_keys=survey.active,
        keys=keys,
        throttles=tuple(_throttle_view(bucket, now_ms) for bucket in buckets[:THROTTLES_SHOWN]),
        registered=tuple(consumer_views(engine.ledger, schedule, name)),
        sinks=tuple(sink_views(engine.ledger, name)),
    )


def _key_view(engine: Looked, queue: Queue, state: KeyState, now_ms: int) -> KeyView:
    key, policy = state.key, engine.schedule.key_policy(queue.name, state.key)
    waits = engine.consumers.wait_times.p50_and_p99_ms(queue.name, key, now_ms)
    return KeyView(
        key=key,
        messages=state.waiting + state.in_use,
        leased=state.in_use,
        weight=policy.weight if policy is not None else 1,
        cap=policy.cap if policy is not None else None,
        deficit=engine.schedule.kernel(queue.name).deficit(key),
        is_paused=any(above in queue.paused_keys for above in _above(key)),
        wait_p50_ms=None if waits is None else waits[0],
        wait_p99_ms=None if waits is None else waits[1],
        throttle=state.throttle,
        throttled_until_ms=state.until_ms,
        rate=policy.rate if policy is not None else None,
        burst=policy.burst if policy is not None else None,
        floor=policy.floor if policy is not None else 0,
        charges_cost=policy is not None and policy.charges_cost,
        may_go=state.may_go,
    )


def _above(key: Key) -> list[Key]:
    """Return a key and all keys above it."""
    path = (key,) if isinstance(key, str) else key
    return [canonical(path[:depth]) for depth in range(1, len(path) + 1)]


def throttle_views(schedule: Schedule, now_ms: int) -> list[ThrottleView]:
    """Return all throttles that have a rate under their own name, and then all patterns that have one."""
    named = [_throttle_view(bucket, now_ms) for bucket in schedule.throttles if bucket.is_set]
    made = {counts.name: counts for counts in schedule.throttles.counts(now_ms)}
    patterns = []
    for name, limit in schedule.throttle_patterns():
        counts = made.get(name)
        tokens, buckets = (0, 0) if counts is None else (counts.tokens, counts.buckets)
        view = ThrottleView(
            name=name,
            rate=limit.rate,
            burst=burst_of(limit.rate, limit.burst),
            tokens=tokens,
            buckets=buckets,
            charges_cost=limit.charges_cost,
        )
        patterns.append(view)
    return named + patterns


def _throttle_view(bucket: Bucket, now_ms: int) -> ThrottleView:
    return ThrottleView(
        name=bucket.name,
        rate=bucket.rate,
        burst=bucket.burst,
        tokens=bucket.tokens(now_ms),
        charges_cost=bucket.charges_cost,
    )


def consumer_views(ledger: Ledger, schedule: Schedule, queue: str) -> list[ConsumerView]:
    """Return the registered consumers of a queue, by name. Raises QueueNotFound if there is none of this name."""
    found = known(ledger, queue)
    return [
        ConsumerView(
            queue=queue,
            name=name,
            epoch=consumer.epoch,
            claimed=consumer.claimed,
            done=consumer.done,
            open_messages=0 if consumer.claim is None else len(consumer.claim.held(found)),
            heard_ms=schedule.presence.heard_ms(queue, name),
            idle_ms=consumer.idle_ms,
        )
        for name, consumer in sorted(found.consumers.items())
    ]


def stream_views(ledger: Ledger, waiting: WaitingConsumers, queue: str) -> list[StreamView]:
    """Return the consumers that messages of a queue are streamed to, those with the oldest lease first.

    Raises:
        QueueNotFound: there is none of this name.
    """
    known(ledger, queue)
    views = [
        StreamView(
            owner=each.owner,
            credit=each.credit,
            leased=len(each.held),
            oldest_token=min(each.held.values(), default=None),
        )
        for each in waiting.attached.get(queue, ())
    ]
    return sorted(views, key=lambda view: (view.oldest_token is None, view.oldest_token))


def sink_views(ledger: Ledger, queue: str) -> list[SinkView]:
    """Return the sinks of a queue, by name. Raises QueueNotFound if there is none of this name."""
    return [
        SinkView(
            queue=queue,
            name=name,
            batch=sink.batch,
            staged_messages=sum(part.count for part in sink.parts.values()),
            staged_bytes=sum(part.size for part in sink.parts.values()),
            heard_ms=sink.heard_ms,
        )
        for name, sink in sorted(known(ledger, queue).sinks.items())
    ]


# ------------------------------------------------------------------------------------------------------------- messages


def cursor(queue: Queue, after: str) -> int:
    """Return the number of the message after which a list begins.

    Raises:
        InvalidArgument: it is no id, or the place of the message is unknown.
    """
    number = queue.ids.number_of(after)
    if number is None:
        raise InvalidArgument(f"after must be the id of a message, not {after!r:.60}.")
    if number not in queue.messages and is_dlq(queue.name):
        raise InvalidArgument(
            f"Message {after} has left the dead letters, so the page after it is unknown. Start again without `after`."
        )
    return number


def views_of(bodies: Bodies, messages: Sequence[Message], *, with_body: bool, now_ms: int) -> list[MessageView]:
    """Return messages as observers see them."""
    views = [message_view(message, now_ms) for message in messages]
    if not with_body:
        return views
    return [
        msgspec.structs.replace(
            view,
            payload=None if bodies.is_streamed(message) else payload,
            headers=headers,
            correlation_id=correlation_id or view.id,
        )
        for message, view, (headers, correlation_id, payload) in zip(
            messages, views, bodies.read(messages, with_pieces=True), strict=True
        )
    ]


def message_view(message: Message, now_ms: int) -> MessageView:
    """Return a message as an observer sees it, without its body."""
    after = message.after if message.after is not None else _NO_AFTERMATH
    message_id = message.id
    return MessageView(
        id=message_id,
        queue=message.queue.name,
        status=status_of(message, now_ms),
        fairness_key=message.key,
        weight=message.weight or 1,
        cost=message.cost,
        priority=PRIORITY_NAMES[message.priority],
        throttles=message.throttles,
        enqueued_ms=message.enqueued_ms,
        due_ms=message.due_ms,
        deadline_ms=message.deadline_ms,
        size=message.size,
        attempts=message.attempts,
        failures=message.failures,
        errors=after.errors,
        dead=dead_letter_of(message),
        owner=message.owner,
        expires_ms=None if message.is_claimed else message.expires_ms or None,
        state_etag=None if after.state is None else number_text(after.state),
        correlation_id=message.correlation_id or message_id,
        claim=_claim_of(message),
        max_attempts=after.max_attempts,
        visibility_timeout_ms=after.visibility_ms,
        order_key=after.order_key,
        unique_key=after.unique_key,
    )


def status_of(message: Message, now_ms: int) -> MessageStatus:
    """Return whether a message is leased, waits for its delay, or waits."""
    if message.token:
        return "leased"
    return "delayed" if message.due_ms is not None and message.due_ms > now_ms else "waiting"


def _claim_of(message: Message) -> int | None:
    consumer = message.queue.consumers.get(message.owner or "") if message.is_claimed else None
    return None if consumer is None or consumer.claim is None else consumer.claim.number


def explain(
    ledger: Ledger, schedule: Schedule, waiting: WaitingConsumers, queue: str, message_id: str, now_ms: int
) -> Explained:
    """Explain why a message waits."""
    message = known_message(ledger, queue, message_id)

    def explained(reason: str, words: str, **more: object) -> Explained:
        known = {"id": message.id, "queue": queue, "correlation_id": message.correlation_id or message.id}
        return Explained(reason=reason, words=words, **known, **more)  # type: ignore[arg-type] # by name

    if message.token and message.is_claimed:
        words = (
            f"It is claimed by consumer {message.owner} under claim {_claim_of(message)}, attempt {message.attempts}."
        )
        return explained("leased", words, owner=message.owner)
    if message.token:
        whom = f" to {message.owner}" if message.owner else ""
        words = f"It is leased{whom} for another {message.expires_ms - now_ms} ms, attempt {message.attempts}."
        return explained("leased", words, until_ms=message.expires_ms, owner=message.owner)
    if message.queue.is_paused:
        return explained("queue_paused", f"Queue {queue!r} is paused.")
    found = schedule.explain(message, now_ms)
    reason = found.reason.value
    if isinstance(found.first, Message):
        words = f"It waits behind message {found.first.id} of its key: the queue's order is strict."
        return explained(reason, words, key=message.key, first=found.first.id)
    if reason != "eligible":
        return explained(
            reason,
            str(found),
            until_ms=found.until_ms,
            key=found.key,
            throttle=found.throttle,
            share=found.share,
        )
    if not waiting.waiting(queue):
        words = f"{str(found).removesuffix('.')}, but no consumer is asking for messages."
        return explained("no_consumer", words, turns=found.turns)
    return explained("turn", str(found), turns=found.turns)
