"""Queue templates: what new queues begin with, and which queues the first request creates."""

from __future__ import annotations

import json

import pytest

from fairlane.core.apply.queues import config_set
from fairlane.errors import HookInvalid, InvalidArgument, QueueNotFound
from fairlane.journal.records import ConfigSet, QueueSet
from fairlane.model.message import NewMessage
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.templates import QueueTemplate, template_for
from tests.unit.broker.stepping import lease_one

KEYED = 'function on_enqueue(msg) return { fairness_key = "mine" } end'


def broker_with_template(pattern: str, **template: object) -> SteppedBroker:
    broker = SteppedBroker()
    broker.set_config(f"queue_template:{pattern}", json.dumps(template))
    return broker


def test_without_a_template_a_missing_queue_is_refused() -> None:
    """Nothing is created unless an operator says so."""
    broker = SteppedBroker()
    with pytest.raises(QueueNotFound):
        broker.enqueue("jobs", b"x")
    assert broker.queues() == []


def test_an_enqueue_creates_the_queue_of_a_template() -> None:
    """The queue has the template's policy and its dead-letter queue, and both are there after a restart."""
    broker = broker_with_template("jobs.*", auto_create=True, policy={"max_attempts": 2})
    broker.enqueue("jobs.mail", b"x")
    broker.reopen()
    assert [view.name for view in broker.queues()] == ["jobs.mail", "jobs.mail.dlq"]
    assert broker.queue("jobs.mail").policy.max_attempts == 2
    assert lease_one(broker, "jobs.mail").payload == b"x"


def test_a_lease_creates_the_queue_of_a_template() -> None:
    """A worker that starts before the first producer gets an empty queue."""
    broker = broker_with_template("jobs.*", auto_create=True)
    assert broker.lease("jobs.mail") == []
    assert broker.queue("jobs.mail").waiting == 0


def test_a_forward_creates_the_queue_of_a_template() -> None:
    """An acknowledgement can begin a queue; one whose target has no template changes nothing."""
    broker = broker_with_template("next.*", auto_create=True)
    broker.create_queue("first")
    broker.enqueue("first", b"x")
    held = lease_one(broker, "first")
    with pytest.raises(QueueNotFound):
        broker.ack(held, forward={"other": [NewMessage(payload=b"y")]})
    broker.ack(held, forward={"next.one": [NewMessage(payload=b"y")]})
    assert lease_one(broker, "next.one").payload == b"y"


@pytest.mark.parametrize("queue", ["other", "jobs", "jobs.mail.dlq", "jobs.a b", "jobs.mail~1", "jobs." + "x" * 121])
def test_only_names_that_match_and_are_valid_are_created(queue: str) -> None:
    """A name that no queue can have is refused as a queue that does not exist."""
    broker = broker_with_template("jobs.*", auto_create=True)
    with pytest.raises(QueueNotFound):
        broker.enqueue(queue, b"x")
    with pytest.raises(QueueNotFound):
        broker.lease(queue)
    assert broker.queues() == []


def test_a_template_without_auto_create_only_rules_queues_that_are_created() -> None:
    """An enqueue is refused; create_queue and ensure_queue begin with the template, and what they are given wins."""
    broker = broker_with_template("jobs.*", policy={"max_attempts": 2, "quantum": 7})
    with pytest.raises(QueueNotFound):
        broker.enqueue("jobs.a", b"x")
    broker.create_queue("jobs.a", {"max_attempts": 5})  # the default, but given
    assert broker.ensure_queue("jobs.b", {"quantum": 3}).policy.max_attempts == 2
    policy = broker.queue("jobs.a").policy
    assert (policy.max_attempts, policy.quantum) == (5, 7)
    assert broker.queue("jobs.b").policy.quantum == 3
    broker.create_queue("other")
    assert broker.queue("other").policy.quantum == 1


def test_the_longest_pattern_holds() -> None:
    """Templates are not merged: the most specific one counts alone."""
    templates = {"*": QueueTemplate(queues_max=1), "jobs.*": QueueTemplate(queues_max=2), "jobs.x": QueueTemplate()}
    assert template_for(templates, "jobs.x") is templates["jobs.x"]
    assert template_for(templates, "jobs.xy") is templates["jobs.*"]
    assert template_for(templates, "job") is templates["*"]
    assert template_for({"jobs.*": QueueTemplate()}, "job") is None


def test_a_template_changes_live_and_queues_stay() -> None:
    """A changed template holds for later queues only, and a removed one creates nothing."""
    broker = broker_with_template("*", auto_create=True, policy={"quantum": 2})
    broker.enqueue("a", b"x")
    broker.set_queue_template("*", {"quantum": 3}, auto_create=True)
    broker.enqueue("b", b"x")
    assert [broker.queue(name).policy.quantum for name in ("a", "b")] == [2, 3]
    assert broker.queue_templates() == {"*": QueueTemplate(policy={"quantum": 3}, auto_create=True)}
    broker.remove_queue_template("*")
    assert broker.queue_templates() == {}
    with pytest.raises(QueueNotFound):
        broker.enqueue("c", b"x")
    broker.enqueue("a", b"x")


def test_a_temporary_template_expires() -> None:
    """A template is a config value, and one with an expiry creates queues only until then."""
    broker = SteppedBroker()
    broker.set_config("queue_template:*", '{"auto_create": true}', expire_after_ms=1_000)
    broker.enqueue("a", b"x")
    broker.clock.advance(1_001)
    broker.cycle()
    with pytest.raises(QueueNotFound):
        broker.enqueue("b", b"x")


def test_a_template_stops_at_its_number_of_queues() -> None:
    """A producer that invents names can't create queues without end, and is told why; queues by hand go on."""
    broker = broker_with_template("*", auto_create=True, queues_max=2)
    broker.enqueue("a", b"x")
    broker.enqueue("b", b"x")
    with pytest.raises(QueueNotFound, match="queues_max of its template is 2"):
        broker.enqueue("c", b"x")
    with pytest.raises(QueueNotFound, match="queues_max"):
        broker.lease("c")
    broker.create_queue("c")
    broker.enqueue("c", b"x")


def test_a_deleted_queue_is_created_again() -> None:
    """A template holds for a name, not for one queue of that name."""
    broker = broker_with_template("*", auto_create=True)
    broker.enqueue("a", b"x")
    broker.delete_queue("a")
    broker.enqueue("a", b"y")
    assert lease_one(broker, "a").payload == b"y"


def test_scripts_of_a_template_run_in_its_queues() -> None:
    """The first message already goes through the hook; a script that can't be used creates nothing."""
    broker = broker_with_template("jobs.*", auto_create=True, policy={"on_enqueue": KEYED})
    broker.enqueue("jobs.a", b"x")
    assert lease_one(broker, "jobs.a").fairness_key == "mine"
    broker.set_queue_template("jobs.*", {"on_enqueue": "function ("}, auto_create=True)
    with pytest.raises(HookInvalid):
        broker.enqueue("jobs.b", b"x")
    with pytest.raises(HookInvalid):
        broker.lease("jobs.b")
    assert [view.name for view in broker.queues()] == ["jobs.a", "jobs.a.dlq"]


def test_the_journal_names_the_caller_who_caused_the_queue() -> None:
    """The journal has the queue like any other, with the producer as its author, before the message."""
    broker = broker_with_template("*", auto_create=True)
    seen: list[object] = []
    broker.engine.taps.append(lambda records, _now_ms: seen.extend(records))
    broker.call(Enqueue(queue="a", messages=[NewMessage(payload=b"x")]), by="producer")
    assert [type(record).__name__ for record in seen] == ["QueueSet", "QueueSet", "Enqueued"]
    assert [record.by for record in seen if isinstance(record, QueueSet)] == ["producer", "producer"]


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("", "{}"),
        ("a*b", "{}"),
        ("a", "yes"),
        ("a", '{"autocreate": true}'),
        ("a", '{"policy": {"max_atempts": 1}}'),
        ("a", '{"policy": {"max_attempts": -1}}'),
        ("a", '{"queues_max": 0}'),
    ],
)
def test_an_invalid_template_is_refused(pattern: str, value: str) -> None:
    """The error names what is wrong, and nothing is set."""
    broker = SteppedBroker()
    with pytest.raises(InvalidArgument):
        broker.set_config(f"queue_template:{pattern}", value)
    assert broker.list_config() == {}


def test_a_template_that_this_version_cannot_use_creates_nothing() -> None:
    """A store that another version wrote opens; its unknown templates are ignored or refused, never half used."""
    broker = SteppedBroker()
    unknown = {"a": '{"since_version_9": 1}', "b": '{"auto_create": true, "policy": {"x": 1}}'}
    for name, value in unknown.items():
        config_set(broker.engine.ledger, ConfigSet(1, f"queue_template:{name}", value), 0)
    with pytest.raises(QueueNotFound):
        broker.enqueue("a", b"x")
    with pytest.raises(InvalidArgument, match="template of queue 'b' can't be used"):
        broker.enqueue("b", b"x")
    with pytest.raises(InvalidArgument, match="no field 'x'"):
        broker.create_queue("b")
    assert broker.queues() == []
