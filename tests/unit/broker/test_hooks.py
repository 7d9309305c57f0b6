"""Hooks through the broker: the seeds' scripts, the breaker, config, failures, and scripts that can't be used."""

from __future__ import annotations

import contextlib

import pytest

from fairlane.adapters.memory.store import MemoryStore
from fairlane.errors import HookInvalid, StoreCorrupt
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.testing.stepped import SteppedBroker
from tests.kit.ids import numbered
from tests.unit.broker.stepping import broker_with, lease_one, message
from tests.unit.hooks.scripts import SEED_ON_ENQUEUE, SEED_ON_FAILURE

BROKEN = 'function on_enqueue(msg) error("always") end'


def terms_of(broker: SteppedBroker, **headers: str) -> tuple[object, ...]:
    view = broker.get("q", broker.enqueue("q", b"12345", headers=headers))
    return (view.fairness_key, view.weight, view.throttles)


def test_the_seeds_scripts_run_unchanged() -> None:
    """Must show 5: key, weight and throttles by ``on_enqueue``; delay then dead letter by ``on_failure``."""
    broker = broker_with({"on_enqueue": SEED_ON_ENQUEUE, "on_failure": SEED_ON_FAILURE})
    assert terms_of(broker, tenant="acme", priority="3", endpoint="/api") == ("acme", 3, ("/api",))
    assert terms_of(broker) == ("default", 1, ())
    broker.purge("q")
    message_id = broker.enqueue("q", b"x")
    for attempt in (1, 2):
        broker.nack(lease_one(broker), error="no")
        due_ms = broker.get("q", message_id).due_ms
        assert due_ms == broker.clock.now_ms() + 1_000 * attempt
        broker.advance(1_000 * attempt)
    broker.nack(lease_one(broker), error="no")
    dead = broker.get("q.dlq", message_id)
    assert dead.dead is not None
    assert (dead.dead.reason, dead.failures) == ("hook", 3)


def test_a_hook_sees_queue_size_headers_and_config() -> None:
    """``fairlane.get`` and ``fila.get`` read config as it is now, and a change acts on the next enqueue."""
    script = """function on_enqueue(msg)
      local key = (fila.get("prefix") or "none") .. ":" .. (fairlane.get("prefix") or "none")
      return { fairness_key = key .. ":" .. msg.queue .. ":" .. msg.payload_size .. ":" .. (msg.headers.a or "-") }
    end"""
    broker = broker_with({"on_enqueue": script})
    assert terms_of(broker)[0] == "none:none:q:5:-"
    broker.set_config("public:prefix", "p")
    assert terms_of(broker, a="b")[0] == "p:p:q:5:b"
    broker.reopen()
    assert terms_of(broker, a="c")[0] == "p:p:q:5:c"


def test_a_hook_reads_its_own_queues_config_and_public_values_only() -> None:
    """A queue's own value wins over the public one; values of other queues, and those for no hook, read as nil."""
    broker = broker_with()
    broker.create_queue("other")
    broker.set_config("smtp:password", "hunter2")
    broker.set_config("queue:other:mine", "theirs")
    broker.set_config("public:plan", "free")
    broker.set_config("queue:q:plan", "paid")

    def read(queue: str, name: str) -> str | None:
        script = f'function on_enqueue() return {{ fairness_key = fairlane.get("{name}") or "nil" }} end'
        answer = broker.try_on_enqueue(queue, script, headers={}).answer
        assert isinstance(answer, EnqueueAnswer)
        return str(answer.fairness_key)

    assert [read("q", "plan"), read("other", "plan"), read("q.dlq", "plan")] == ["paid", "free", "paid"]
    assert [read("other", "mine"), read("q", "mine")] == ["theirs", "nil"]
    for name in ("smtp:password", "queue:other:mine", "public:plan", "auth:key:first", "../smtp:password"):
        assert read("q", name) == "nil"
    leaked = broker.try_on_enqueue("q", 'function on_enqueue() error(fairlane.get("smtp:password")) end', headers={})
    assert leaked.fault == "an error without a text, but of type nil"


def test_a_hook_can_set_cost_priority_cap_delay_and_deadline() -> None:
    """What goes beyond the seeds: all of it reaches the message."""
    script = """function on_enqueue(msg)
      return { cost = 7, priority = "high", cap = 1, delay_ms = 100, deadline_ms = 900 }
    end"""
    broker = broker_with({"on_enqueue": script})
    ids = broker.enqueue_many("q", [message(), message()])
    view = broker.get("q", str(ids[0]))
    now_ms = broker.clock.now_ms()
    assert (view.cost, view.priority, view.due_ms, view.deadline_ms) == (7, "high", now_ms + 100, now_ms + 900)
    broker.advance(100)
    assert len(broker.lease("q", 9)) == 1


def test_when_the_breaker_is_open_the_declared_keys_still_apply() -> None:
    """A script that fails three times is bypassed; isolation stays, and after the cooldown it is asked again."""
    broker = broker_with({"on_enqueue": BROKEN, "fairness_key_from": "header:tenant", "throttles_from": ("t",)})
    for tenant in ("a", "b", "c", "d", "e"):
        assert terms_of(broker, tenant=tenant) == (tenant, 1, ("t",))
    statistics = broker.hook_statistics("q")
    assert (statistics.faults, statistics.bypassed, statistics.is_open) == (3, 2, True)
    assert "always" in (statistics.last_fault or "")
    broker.advance(10_000)
    terms_of(broker, tenant="f")
    assert broker.hook_statistics("q").faults == 4


def test_one_queues_bad_script_disturbs_no_other() -> None:
    """While one queue's script loops, bombs memory and throws, another's answers as ever."""
    broker = broker_with({"on_enqueue": SEED_ON_ENQUEUE})
    for name, body in (
        ("loops", "while true do end"),
        ("bombs", "local t = {} while true do t[#t+1] = string.rep('x', 1000) end"),
        ("throws", "error({})"),
    ):
        broker.create_queue(name, {"on_enqueue": f"function on_enqueue(msg) {body} end"})
        broker.enqueue(name, b"x", fairness_key="mine")
        assert lease_one(broker, name).fairness_key == "mine"
        assert terms_of(broker, tenant="acme")[0] == "acme"


def test_on_failure_is_asked_on_expiry_and_release_too() -> None:
    """A consumer that dies or vanishes counts as a failure like any other."""
    broker = broker_with({"on_failure": 'function on_failure(msg) return { action = "dlq" } end'})
    broker.enqueue("q", b"1")
    lease_one(broker)
    broker.advance(30_000)
    broker.enqueue("q", b"2")
    consumer, _ = broker.attach("q")
    broker.detach(consumer)
    assert [view.dead.reason for view in broker.peek("q.dlq") if view.dead] == ["hook", "hook"]


def test_on_failure_sees_the_failure_and_wins_over_the_policy() -> None:
    """It is told headers, id, attempts and error; its retry goes beyond ``max_attempts``, its delay over the nack's."""
    script = """function on_failure(msg)
      local words = msg.headers.a .. msg.id .. msg.attempts .. msg.queue .. msg.error
      return { action = "retry", delay_ms = #words }
    end"""
    broker = broker_with({"on_failure": script, "max_attempts": 1})
    message_id = broker.enqueue("q", b"x", headers={"a": "header"})
    broker.nack(lease_one(broker), error="boom", delay_ms=5)
    assert broker.get("q", message_id).due_ms == broker.clock.now_ms() + len("header") + 36 + 1 + 1 + 4


def test_when_on_failure_fails_the_policy_decides() -> None:
    """Backoff and ``max_attempts`` hold where the script throws."""
    broker = broker_with({"on_failure": "function on_failure(msg) error('x') end", "max_attempts": 2, "backoff_ms": 0})
    message_id = broker.enqueue("q", b"")
    broker.nack(lease_one(broker))
    broker.nack(lease_one(broker))
    dead = broker.get("q.dlq", message_id).dead
    assert dead is not None
    assert dead.reason == "max_attempts"


@pytest.mark.parametrize(
    "script",
    ["function on_enqueue(msg", "", "x = 1", "error('at load')", "while true do end", "function on_failure(m) end"],
)
def test_a_script_that_can_not_be_used_is_refused_and_the_old_one_stays(script: str) -> None:
    """Neither create nor update takes it; the queue goes on with the script before, also after a reopen."""
    broker = broker_with({"on_enqueue": SEED_ON_ENQUEUE})
    with pytest.raises(HookInvalid):
        broker.create_queue("r", {"on_enqueue": script})
    with pytest.raises(HookInvalid):
        broker.update_queue("q", {"on_enqueue": script})
    assert [view.name for view in broker.queues()] == ["q", "q.dlq"]
    assert terms_of(broker, tenant="acme")[0] == "acme"
    broker.reopen()
    assert terms_of(broker, tenant="acme")[0] == "acme"


def test_a_script_is_changed_and_removed_live() -> None:
    """The next enqueue is asked of the new script, and of none once it is removed; a new one closes the breaker."""
    broker = broker_with({"on_enqueue": BROKEN})
    for _ in range(5):
        terms_of(broker)
    broker.update_queue("q", {"on_enqueue": 'function on_enqueue(msg) return { fairness_key = "new" } end'})
    assert terms_of(broker)[0] == "new"
    broker.update_queue("q", {"on_enqueue": None})
    assert terms_of(broker)[0] == "default"


def test_a_script_goes_with_its_queue() -> None:
    """A queue made again under the same name has no script and no counts of its former life."""
    broker = broker_with({"on_enqueue": BROKEN})
    terms_of(broker)
    broker.delete_queue("q")
    broker.create_queue("q")
    assert terms_of(broker)[0] == "default"
    assert broker.hook_statistics("q").calls == 0


def test_scripts_can_be_tried_without_doing_anything() -> None:
    """An answer or a fault, and nothing enqueued, journaled, counted or changed; config can be read."""
    broker = broker_with()
    broker.set_config("public:k", "v")
    before = broker.engine.ledger.next_sequence
    script = 'function on_enqueue(msg) return { fairness_key = fairlane.get("k") .. msg.headers.a } end'
    tried = broker.try_on_enqueue("q", script, headers={"a": "b"}, payload_size=3)
    assert (tried.answer, tried.fault) == (EnqueueAnswer(fairness_key="vb"), None)
    failed = broker.try_on_failure("q", SEED_ON_FAILURE, headers={}, attempts=3, error="x")
    assert failed.answer == FailureAnswer(is_dead=True)
    retried = broker.try_on_failure("q", SEED_ON_FAILURE, headers={}, attempts=2)
    assert retried.answer == FailureAnswer(is_dead=False, delay_ms=2_000)
    wrong = broker.try_on_enqueue("q", "function on_enqueue(msg) while true do end end", headers={})
    assert wrong.answer is None
    assert wrong.fault
    assert broker.engine.ledger.next_sequence == before
    assert broker.hook_statistics("q").calls == 0


def test_a_missing_body_under_a_hook_stops_no_other_queue() -> None:
    """A message whose body the disk has lost fails alone: it goes to the dead letters, and other queues go on."""
    broker = broker_with({"on_failure": SEED_ON_FAILURE, "max_attempts": 2, "backoff_ms": 0})
    broker.create_queue("other")
    lost = broker.enqueue("q", b"x")
    broker.reopen()
    store = broker.store
    assert isinstance(store, MemoryStore)
    del store._bodies[numbered(lost)]
    for _ in range(3):
        with contextlib.suppress(StoreCorrupt):
            broker.lease("q")
        broker.advance(60_000)
    broker.enqueue("other", b"y")
    assert lease_one(broker, "other").payload == b"y"
    assert [view.id for view in broker.peek("q.dlq")] == [lost]
