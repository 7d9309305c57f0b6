"""Names that producers choose mean nothing for other tenants: fan-outs, sinks, and lists of what is open."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from fairlane.broker.handlers import submission_of
from fairlane.core.producer import LimitedProducer, limited
from fairlane.errors import Forbidden
from fairlane.model.message import NewMessage
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.batches import ListSinks, Publish, Stage
from fairlane.verbs.fan_outs import FannedOutIds, FanOut
from fairlane.verbs.keys import Grant
from fairlane.verbs.status import GetResult
from fairlane.verbs.uploads import BeginUpload, ListUploads
from fairlane.verbs.verb import Request
from tests.unit.broker.stepping import broker_with, lease_one, message

A = TypeVar("A")


def asked(broker: SteppedBroker, request: Request[A], by: str, *grants: Grant) -> A:
    """Return the answer to a request of an API key with these grants."""
    producer = limited(by, grants)
    answer: A = broker.wait(broker.submit(lambda reply: submission_of(broker.engine, request, reply, by, producer)))
    return answer


# ------------------------------------------------------------------------------------------------------------ fan-outs


def fan_out_of(tenant: str | tuple[str, ...] | None, **fields: Any) -> FanOut:
    """Return a request for a fan-out of one member, all for one tenant, always under the same name."""
    new = NewMessage(fairness_key=tenant, **fields)
    return FanOut(queue="q", name="job-1", messages={"q": [new]}, then=new)


def fan_out(broker: SteppedBroker, tenant: str) -> FannedOutIds:
    """Fan out as a tenant whose API key is limited to its own fairness key."""
    return asked(broker, fan_out_of(tenant), tenant, Grant(right="produce", keys=(tenant,)))


def test_tenants_use_the_same_name_for_their_fan_outs() -> None:
    """Each has a fan-out of its own, and a repeat is answered with the ids of its own."""
    broker = broker_with()
    acme, bigcorp = fan_out(broker, "acme"), fan_out(broker, "bigcorp")
    assert not bigcorp.is_repeat
    assert {acme.id, *acme.ids}.isdisjoint({bigcorp.id, *bigcorp.ids})
    assert broker.queue("q").waiting == 2
    for tenant, own in (("acme", acme), ("bigcorp", bigcorp)):
        again = fan_out(broker, tenant)
        assert (again.id, again.ids, again.is_repeat) == (own.id, own.ids, True)


def test_a_name_stays_its_tenants_when_the_fan_out_is_written_down_again() -> None:
    """After moved bases and restarts, and when the continuation is gone, only the tenant's own repeat is one."""
    broker = broker_with({"dedup_window_ms": 1_000_000}, carry_floor=20)
    first = fan_out(broker, "acme")
    broker.ack(lease_one(broker))
    broker.ack(lease_one(broker))
    base = broker.engine.ledger.base
    for _ in range(200):
        broker.enqueue("q", b"")
        broker.ack(lease_one(broker))
    assert broker.engine.ledger.base > base
    for _ in range(2):
        broker.reopen()
        assert fan_out(broker, "acme").id == first.id
    assert not fan_out(broker, "bigcorp").is_repeat


def test_a_name_belongs_to_the_key_that_the_continuation_gets() -> None:
    """Where a header declares the key, or a script chooses it, the name is looked up for that tenant."""
    script = "function on_enqueue(m) return {fairness_key = m.headers.tenant} end"
    for policy in ({"fairness_key_from": "header:tenant"}, {"on_enqueue": script}):
        broker = broker_with(policy)
        ids = [broker.call(fan_out_of(None, headers={"tenant": tenant})).id for tenant in ("a", "b", "a", "b")]
        assert ids[:2] == ids[2:]
        assert ids[0] != ids[1]


def test_a_name_covers_all_keys_of_a_tenant() -> None:
    """The tenant is the first name of a path."""
    broker = broker_with()
    first = broker.call(fan_out_of("acme"))
    assert broker.call(fan_out_of(("acme", "web"))).id == first.id


def test_grants_are_checked_before_names_are_looked_up() -> None:
    """A caller that may not fan out for a tenant does not learn the ids of its fan-outs."""
    broker = broker_with()
    fan_out(broker, "acme")
    with pytest.raises(Forbidden, match="may not produce for fairness key 'acme'"):
        asked(broker, fan_out_of("acme"), "bigcorp", Grant(right="produce", keys=("bigcorp",)))


def test_a_deleted_queue_forgets_the_names_of_all_tenants() -> None:
    """A queue of the same name starts afresh."""
    broker = broker_with()
    fan_out(broker, "acme")
    broker.delete_queue("q")
    broker.create_queue("q")
    assert not fan_out(broker, "acme").is_repeat
    assert broker.enqueue("q", message().payload)


# --------------------------------------------------------------------------------------------------------------- sinks


def stage_of(tenant: str, sink: str) -> Stage:
    """Return a request to stage one message for a tenant, as the first batch of a sink."""
    return Stage(queue="q", sink=sink, batch=0, part="p", at=0, messages=[NewMessage(fairness_key=tenant)])


def publish_of(sink: str) -> Publish:
    """Return a request to publish that batch."""
    return Publish(queue="q", sink=sink, batch=0, parts=["p"])


def test_a_tenant_uses_the_sinks_of_its_grant_only() -> None:
    """Under the name of another tenant's sink it neither stages nor publishes, and the other loses nothing."""
    broker = broker_with()
    acme = Grant(right="produce", keys=("acme",), sinks=("acme-*",))
    bigcorp = Grant(right="produce", keys=("bigcorp",), sinks=("bigcorp",))
    for request in (stage_of("acme", "bigcorp"), Publish(queue="q", sink="bigcorp", batch=9, parts=[])):
        with pytest.raises(Forbidden, match="API key 'acme' may not use sink 'bigcorp' of queue 'q'"):
            asked(broker, request, "acme", acme)
    for sink, tenant, grant in (("acme-1", "acme", acme), ("bigcorp", "bigcorp", bigcorp)):
        assert asked(broker, stage_of(tenant, sink), tenant, grant).count == 1
        assert not asked(broker, publish_of(sink), tenant, grant).was_published
    assert [delivery.fairness_key for delivery in broker.lease("q", 9)] == ["acme", "bigcorp"]


@pytest.mark.parametrize(
    ("grants", "is_allowed"),
    [
        ([Grant(right="produce", keys=("acme",))], False),
        ([Grant(right="produce", keys=("acme",), sinks=("s",))], True),
        ([Grant(right="produce", keys=("acme",), sinks=("s-*",))], False),
        ([Grant(right="produce")], True),
        ([Grant(right="produce", sinks=())], False),
        ([Grant(right="produce", sinks=("s*",))], True),
        ([Grant(right="produce", keys=("acme",)), Grant(right="produce", queues="other", sinks=("s",))], False),
        ([Grant(right="produce", keys=("acme",)), Grant(right="admin")], True),
    ],
)
def test_using_a_sink_is_a_right(grants: list[Grant], is_allowed: bool) -> None:
    """A grant names the sinks that its caller may use: any by default, none by default if it has keys."""
    broker = broker_with()
    for request in (stage_of("acme", "s"), publish_of("s")):
        if is_allowed:
            asked(broker, request, "acme", *grants)
        else:
            with pytest.raises(Forbidden, match="may not use sink 's'"):
                asked(broker, request, "acme", *grants)


def test_a_tenant_that_may_not_use_a_sink_does_not_see_it() -> None:
    """A list of sinks has those of the grant; a caller without such a limit sees all of them."""
    broker = broker_with()
    for sink in ("acme", "bigcorp"):
        broker.call(stage_of(sink, sink))

    def seen(*grants: Grant) -> list[str]:
        return [view.name for view in asked(broker, ListSinks(queue="q"), "acme", *grants).sinks]

    assert seen(Grant(right="produce", keys=("acme",))) == []
    assert seen(Grant(right="produce", keys=("acme",), sinks=("acme",))) == ["acme"]
    assert seen(Grant(right="produce")) == ["acme", "bigcorp"]


# -------------------------------------------------------------------------------------------------------------- uploads


def test_a_tenant_sees_its_own_uploads_only() -> None:
    """A list of open uploads tells a caller with fairness keys nothing of those of other API keys."""
    broker = broker_with()
    grants = {name: Grant(right="produce", keys=(name,)) for name in ("acme", "bigcorp")}
    for name, grant in grants.items():
        asked(broker, BeginUpload(queue="q"), name, grant)

    def seen(*given: Grant) -> list[str | None]:
        return [view.by for view in asked(broker, ListUploads(queue="q"), "acme", *given).uploads]

    assert seen(grants["acme"]) == ["acme"]
    assert seen(Grant(right="produce")) == ["acme", "bigcorp"]
    assert seen(grants["acme"], Grant(right="admin")) == ["acme", "bigcorp"]


# --------------------------------------------------------------------------------------------------- status and results


@pytest.mark.parametrize(
    ("grants", "is_allowed"),
    [
        ([Grant(right="produce", keys=("bigcorp",)), Grant(right="observe")], False),
        ([Grant(right="produce", keys=("bigcorp",)), Grant(right="consume", queues="other")], False),
        ([Grant(right="produce", keys=("bigcorp",)), Grant(right="consume")], True),
        ([Grant(right="produce", keys=("bigcorp", "acme"))], True),
    ],
)
def test_a_result_is_not_for_observers(grants: list[Grant], is_allowed: bool) -> None:
    """A tenant that may also observe a queue does not read what became of messages of another tenant."""
    broker = broker_with({"result_ttl_ms": 10_000})
    broker.enqueue("q", b"", fairness_key="acme")
    delivery = lease_one(broker)
    broker.ack(delivery, result=b"secret")
    reader = LimitedProducer("bigcorp", tuple(grants))
    pending = broker.submit(
        lambda reply: submission_of(broker.engine, GetResult(id=delivery.id, queue="q"), reply, "bigcorp", reader)
    )
    if is_allowed:
        assert broker.wait(pending).result == b"secret"
    else:
        with pytest.raises(Forbidden, match="may not read the status"):
            broker.wait(pending)
