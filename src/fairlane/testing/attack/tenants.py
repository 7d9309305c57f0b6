"""Attacks of one tenant on another inside a shared queue."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from fairlane.model.limits import BATCH_MAX
from fairlane.model.message import NewMessage
from fairlane.testing.attack.attack import Attack, Outcome
from fairlane.testing.attack.target import MSGPACK, AttackedServer, Response
from fairlane.verbs.keys import Grant

_RATE: Final = 20
_SECONDS: Final = 6.0
_SHARE_MIN: Final = 0.35
_COUNT: Final = 100
_TURNS_MIN: Final = 450
_FLOOD: Final = 300_000


def _own_key(target: AttackedServer, queue: str, tenant: str = "acme") -> str | None:
    return target.api_key(f"{tenant}-{queue}", Grant(right="produce", queues=queue, keys=(tenant,)))


def forged_key(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Produce under the fairness key of another tenant, by the header that declares it."""
    policy = {"fairness_key_from": "header:tenant", "key_waiting_max": _COUNT, "backpressure": "drop_oldest"}
    queue = target.queue("forged-key", **policy)
    attacker = _own_key(target, queue)
    target.admin.enqueue_many(queue, [NewMessage(payload=b"genuine", headers={"tenant": "bigcorp"})] * _COUNT)
    begin()
    forged = {"fairness_key": "acme", "headers": {"tenant": "bigcorp"}}
    answer = target.post("queue/enqueue", {"queue": queue, "messages": [forged] * _COUNT}, api_key=attacker)
    found = target.admin.peek(queue, count=_COUNT, with_body=True)
    left = sum(message.payload == b"genuine" for message in found)
    harm = f"{_COUNT - left} messages of another tenant were dropped" if left < _COUNT else ""
    return Outcome(_COUNT, _refused(answer, _COUNT), harm)


def _refused(response: Response, count: int) -> int:
    return sum("error" in result for result in response.content["results"]) if response.is_success else count


def squatted_dedup_id(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Use the dedup id that another tenant is going to use."""
    queue = target.queue("dedup")
    attacker, victim = _own_key(target, queue), _own_key(target, queue, "bigcorp")
    begin()
    for api_key, tenant in ((attacker, "acme"), (victim, "bigcorp")):
        message = {"fairness_key": tenant, "dedup_id": "order-1001"}
        target.post("queue/enqueue", {"queue": queue, "messages": [message]}, api_key=api_key)
    found = {message.fairness_key for message in target.admin.peek(queue, count=10)}
    is_there = not found.isdisjoint({"bigcorp", ("bigcorp",)})
    return Outcome(1, int(is_there), "" if is_there else "the message of another tenant was swallowed")


def squatted_fan_out(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Fan out under the name that another tenant is going to use."""
    queue = target.queue("fan-out")
    begin()
    answers = []
    for tenant in ("acme", "bigcorp"):
        new = {"fairness_key": tenant}
        body = {"queue": queue, "name": "nightly", "messages": {queue: [new]}, "then": new}
        answers.append(target.post("queue/fan_out", body, api_key=_own_key(target, queue, tenant)))
    is_own = answers[1].is_success and not answers[1].content.get("is_repeat", False)
    is_apart = is_own and answers[0].content["id"] != answers[1].content["id"]
    return Outcome(1, int(is_apart), "" if is_apart else "the fan-out of another tenant was swallowed")


def squatted_sink(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Publish batches of another tenant's sink before that tenant does, and look for its name."""
    queue, sink = target.queue("sink"), "bigcorp-lake"
    attacker = _own_key(target, queue)
    staged = {"queue": queue, "sink": sink, "batch": 0, "part": "p", "at": 0, "messages": [{"fairness_key": "acme"}]}
    published = {"queue": queue, "sink": sink, "batch": 0, "parts": ["p"]}
    begin()
    tries = [
        target.post(path, body, api_key=attacker)
        for path, body in (("queue/sink/stage", staged), ("queue/sink/publish", published | {"parts": []}))
    ]
    taken = sum(answer.is_success for answer in tries)
    target.post("queue/sink/stage", staged, api_key=target.admin_key)
    is_published = target.post("queue/sink/publish", published, api_key=target.admin_key).is_success
    shown = target.post("queue/sink/list", {"queue": queue}, api_key=attacker)
    harm = f"{taken} requests on the sink of another tenant were carried out" if taken else ""
    if not is_published or target.admin.queue(queue).waiting != 1:
        harm = harm or "the batch of another tenant was not published"
    if sink in str(shown.content):
        harm = harm or "the name of another tenant's sink was shown"
    return Outcome(3, 3 - taken - int(sink in str(shown.content)), harm)


def own_weight(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Enqueue with a weight that takes all turns."""
    queue = target.queue("weight")
    attacker = _own_key(target, queue)
    begin()
    target.admin.enqueue_many(queue, [NewMessage(fairness_key="bigcorp")] * 1_000)
    heavy = [{"fairness_key": "acme", "weight": 1_000}] * 1_000
    answer = target.post("queue/enqueue", {"queue": queue, "messages": heavy}, api_key=attacker)
    target.admin.enqueue_many(queue, [NewMessage(fairness_key="acme")] * 1_000)
    served = Counter(str(message.fairness_key) for message in target.admin.lease(queue, 1_000))
    victim = sum(count for key, count in served.items() if "bigcorp" in key)
    harm = "" if victim >= _TURNS_MIN else f"another tenant got {victim} of 1,000 turns"
    return Outcome(1_000, _refused(answer, 1_000), harm)


def shared_throttle(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Take all tokens of a throttle that another queue uses, with many consumers."""
    throttle = "attack-shared"
    target.configure(f"throttle:{throttle}:rate", str(_RATE))
    target.configure(f"throttle:{throttle}:burst", "1")
    queues = [target.queue("throttle-a"), target.queue("throttle-b")]
    for queue in queues:
        target.admin.enqueue_many(queue, [NewMessage(throttles=(throttle,))] * 500)
    begin()
    served: Counter[str] = Counter()
    until = time.perf_counter() + _SECONDS
    takers = [threading.Thread(target=_take, args=(target, queues[0], served, until))]
    takers += [threading.Thread(target=_take, args=(target, queues[1], served, until)) for _ in range(6)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    share = served[queues[0]] / max(1, served.total())
    return Outcome(6, 0, "" if share >= _SHARE_MIN else f"the other queue got {share:.0%} of the throttle's tokens")


def _take(target: AttackedServer, queue: str, served: Counter[str], until: float) -> None:
    while time.perf_counter() < until:
        answer = target.post("queue/lease", {"queue": queue, "wait_ms": 1_000}, api_key=target.admin_key)
        if answer.is_success:
            served[queue] += len(answer.content["deliveries"])


def stolen_token(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Acknowledge the message of another consumer with the token that ``peek`` and ``get`` show."""
    queue = target.queue("token")
    other = target.api_key("token", Grant(right="consume", queues=queue))
    target.admin.enqueue(queue, b"x")
    leased = target.admin.lease(queue)
    begin()
    shown = target.post("queue/get", {"queue": queue, "id": leased[0].id}, api_key=other)
    token = shown.content.get("token") if shown.is_success else None
    return Outcome(1, int(token is None), "" if token is None else "a lease token is shown to other consumers")


def read_config(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Read the configuration of others with a hook."""
    queue = target.queue("config")
    target.configure("attack-smtp:password", "hunter2")
    api_key = target.api_key("config", Grant(right="admin", queues=queue))
    begin()
    script = 'function on_enqueue(message) error(tostring(fairlane.get("attack-smtp:password"))) end'
    body = {"queue": queue, "hook": "on_enqueue", "script": script}
    answer = target.post("queues/hook/try", body, api_key=api_key)
    is_shown = "hunter2" in str(answer.content)
    return Outcome(1, int(not is_shown), "a hook read the configuration of others" if is_shown else "")


def flood(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Enqueue as many messages as a few hundred kilobytes of requests can hold, also beyond the limit of a queue."""
    queues = [target.queue("flood"), target.queue("flood-full", waiting_max=_FLOOD // 10)]
    api_keys = [target.api_key(f"flood-{queue}", Grant(right="produce", queues=queue)) for queue in queues]
    begin()
    refused = 0
    for _ in range(_FLOOD // BATCH_MAX):
        for queue, api_key in zip(queues, api_keys, strict=True):
            body = msgspec.msgpack.encode({"queue": queue, "messages": [{}] * BATCH_MAX})
            answer = target.post("queue/enqueue", body, api_key=api_key, content_type=MSGPACK)
            refused += _refused(answer, BATCH_MAX)
    over = target.admin.queue(queues[1]).waiting - _FLOOD // 10
    return Outcome(2 * _FLOOD, refused, f"a queue took {over} messages beyond waiting_max" if over > 0 else "")


def purge(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Purge a queue of the attacker's own that has hundreds of thousands of messages."""
    queue = target.queue("purge")
    api_key = target.api_key("purge", Grant(right="produce", queues=queue), Grant(right="admin", queues=queue))
    body = msgspec.msgpack.encode({"queue": queue, "messages": [{}] * BATCH_MAX})
    for _ in range(_FLOOD // BATCH_MAX):
        target.post("queue/enqueue", body, api_key=api_key, content_type=MSGPACK)
    begin()
    target.post("queues/purge", {"queue": queue}, api_key=api_key)
    left = target.admin.queue(queue).waiting
    return Outcome(1, 0, f"{left} messages were left" if left else "")


ATTACKS: Final = (
    Attack("forged-key", "C2", "messages under another tenant's key", forged_key, needs_keys=True),
    Attack("flood", "M9", "hundreds of thousands of messages", flood),
    Attack("purge", "audit", "purge of hundreds of thousands of messages", purge),
    Attack("shared-throttle", "H4", "all tokens of a shared throttle", shared_throttle),
    Attack("dedup-id", "H5", "another tenant's dedup id", squatted_dedup_id),
    Attack("fan-out-name", "audit", "another tenant's name of a fan-out", squatted_fan_out, needs_keys=True),
    Attack("sink-name", "audit", "another tenant's sink", squatted_sink, needs_keys=True),
    Attack("own-weight", "H6", "a weight of 1,000", own_weight, needs_keys=True),
    Attack("stolen-token", "L2", "another consumer's lease token", stolen_token, needs_keys=True),
    Attack("foreign-config", "M7", "a hook that reads foreign config", read_config, needs_keys=True),
)
