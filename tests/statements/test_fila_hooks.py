"""Fila, core concepts: throttles, scripts and their limits."""

from __future__ import annotations

import pytest

from fairlane.broker.settings import Settings
from fairlane.server.settings import load
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, lease_one, message, payloads
from tests.unit.cli.shell import Shell
from tests.unit.hooks.scripts import SEED_ON_ENQUEUE, SEED_ON_FAILURE, answer_of, fault_of, question


def served(broker: SteppedBroker, ms: int) -> int:
    """Return how many messages a consumer with ample credit gets within a time."""
    _, got = broker.attach("q", credit=1_000)
    broker.advance(ms)
    return len(got)


def key_from(expression: str, **headers: str) -> object:
    """Return the fairness key that a Lua expression gives."""
    answer = answer_of(f"function on_enqueue(msg) return {{ fairness_key = {expression} }} end", question(6, **headers))
    assert answer is not None
    return answer.fairness_key


def seen_on_failure(expression: str, *, failures: int = 1) -> str:
    """Return what an ``on_failure`` script reads from its message, by way of the error of an attempt."""
    script = f"function on_failure(msg) if msg.attempts >= {failures} then error({expression}) end end"
    broker = broker_with({"on_failure": script, "max_attempts": 0})
    message_id = broker.enqueue("q", b"", headers={"tenant": "acme"})
    for _ in range(failures):
        broker.nack(broker.lease("q", wait_ms=600_000)[0], error="boom")
    text = broker.hook_statistics("q").last_fault or ""
    return text.replace(message_id, "ID")


def test_023_a_bucket_refills_at_its_rate() -> None:
    """A token bucket refills at its rate: 5 a second are 30 in 6 seconds, besides the burst."""
    broker = broker_with()
    broker.set_throttle("api", rate=5, burst=1)
    broker.enqueue_many("q", [message(throttles=("api",))] * 100)
    assert 30 <= served(broker, 6_000) <= 31


def test_024_a_bucket_has_a_burst() -> None:
    """A token bucket holds at most its burst, which may go at once."""
    broker = broker_with()
    broker.set_throttle("api", rate=1, burst=20)
    broker.advance(60_000)
    broker.enqueue_many("q", [message(throttles=("api",))] * 100)
    assert len(broker.lease("q", 100)) == 20


def test_025_all_throttle_keys_are_checked() -> None:
    """A message is held until each of its throttles has a token."""
    broker = broker_with()
    broker.set_throttle("open", rate=100, burst=100)
    broker.set_throttle("shut", rate=1, burst=1)
    broker.enqueue_many("q", [message(throttles=("open", "shut"))] * 2)
    assert len(broker.lease("q", 9)) == 1
    broker.advance(999)
    assert len(broker.lease("q", 9)) == 0
    broker.advance(1)
    assert len(broker.lease("q", 9)) == 1


def test_026_a_consumer_gets_only_what_may_go() -> None:
    """A consumer never gets a message that it would have to refuse: two throttles reach their rates and no more."""
    broker = broker_with()
    broker.set_throttle("a", rate=5, burst=1)
    broker.set_throttle("b", rate=20, burst=1)
    broker.enqueue_many("q", [message(b"a", fairness_key="a", throttles=("a", "b"))] * 200)
    broker.enqueue_many("q", [message(b"b", fairness_key="b", throttles=("b",))] * 200)
    _, got = broker.attach("q", credit=1_000)
    broker.advance(4_000)
    assert payloads(got).count(b"a") in (20, 21)
    assert len(got) in (80, 81)


def test_027_the_rate_from_the_command_line(shell: Shell) -> None:
    """`config set throttle:api:rate 10` sets a rate."""
    shell.ok("config", "set", "throttle:api:rate", "10")
    assert shell.broker.throttles()[0].rate == 10


def test_028_the_burst_from_the_command_line(shell: Shell) -> None:
    """`config set throttle:api:burst 20` sets a burst."""
    shell.ok("config", "set", "throttle:api:rate", "10")
    shell.ok("config", "set", "throttle:api:burst", "20")
    assert shell.broker.throttles()[0].burst == 20


def test_029_throttle_keys_from_the_script() -> None:
    """A script can give a message its throttles."""
    broker = broker_with({"on_enqueue": SEED_ON_ENQUEUE})
    broker.set_throttle("api", rate=1, burst=1)
    broker.enqueue_many("q", [message(headers={"endpoint": "api"})] * 3)
    assert len(broker.lease("q", 9)) == 1


def test_030_scripts_are_lua_5_4() -> None:
    """Scripts are Lua 5.4, with integer division and bit operators."""
    assert key_from("tostring((7 // 2) << 2)") == "12"


def test_031_scripts_run_in_a_sandbox() -> None:
    """Scripts reach no file, process or module: the sandbox is an allow-list, narrower than Fila's."""
    for name in ("io", "os", "require", "load", "dofile", "debug", "coroutine", "setmetatable"):
        assert key_from(f"tostring({name})") == "nil"


@pytest.mark.parametrize(("own", "text"), [({}, "64 KiB"), ({"hook_memory_bytes_max": 131_072}, "128 KiB")])
def test_032_the_limits_of_scripts_are_settings(own: dict[str, object], text: str) -> None:
    """Time and memory limits of scripts are settings of the server, which a queue's policy overrides."""
    hungry = "function on_enqueue() local t = {} while true do t[#t + 1] = {} end end"
    settings = Settings(hook_memory_bytes_max=65_536)
    broker = broker_with({"on_enqueue": hungry, "hook_timeout_ms": 25} | own, settings=settings)
    broker.enqueue("q", b"")
    assert broker.hook_statistics("q").last_fault == f"used more than {text}"


def test_033_a_script_sees_headers() -> None:
    """`msg.headers` has the headers of the message."""
    assert key_from("msg.headers.tenant", tenant="acme") == "acme"


def test_034_a_script_sees_the_payload_size() -> None:
    """`msg.payload_size` is the number of bytes of the payload."""
    assert key_from("tostring(msg.payload_size)") == "6"


def test_035_a_script_sees_the_queue() -> None:
    """`msg.queue` is the name of the queue."""
    assert key_from("msg.queue") == "q"


def test_036_the_key_of_an_answer_without_one() -> None:
    """An answer without a `fairness_key` leaves the key `default`."""
    broker = broker_with({"on_enqueue": "function on_enqueue() return {} end"})
    assert broker.get("q", broker.enqueue("q", b"")).fairness_key == "default"


def test_037_the_weight_of_an_answer() -> None:
    """A `weight` is a whole number from 1 to 1000: fractions are rounded down, and 0.5 becomes 1."""
    for given, weight in (("3.9", 3), ("0.5", 1), ("nil", None)):
        answer = answer_of(f"function on_enqueue() return {{ weight = {given} }} end")
        assert answer is not None
        assert answer.weight == weight


def test_038_the_throttles_of_an_answer_without_any() -> None:
    """An answer without `throttle_keys`, or with a list of nil, leaves a message unthrottled."""
    for given in ("{}", "{ throttle_keys = { nil } }"):
        broker = broker_with({"on_enqueue": f"function on_enqueue() return {given} end"})
        assert broker.get("q", broker.enqueue("q", b"")).throttles == ()


def test_039_on_failure_sees_headers() -> None:
    """`on_failure` sees `msg.headers`."""
    assert "acme" in seen_on_failure("msg.headers.tenant")


def test_040_on_failure_sees_the_id() -> None:
    """`on_failure` sees `msg.id`, the UUID of the message."""
    assert "id=ID" in seen_on_failure('"id=" .. msg.id')


def test_041_on_failure_sees_attempts() -> None:
    """`on_failure` sees `msg.attempts`, the number of the attempt that failed."""
    assert "attempts=2" in seen_on_failure('"attempts=" .. msg.attempts', failures=2)


def test_042_on_failure_sees_the_queue() -> None:
    """`on_failure` sees `msg.queue`."""
    assert "queue=q" in seen_on_failure('"queue=" .. msg.queue')


def test_043_on_failure_sees_the_error() -> None:
    """`on_failure` sees `msg.error`, the text of the nack."""
    assert "error=boom" in seen_on_failure('"error=" .. msg.error')


def test_044_the_actions_retry_and_dlq() -> None:
    """`on_failure` answers `retry` or `dlq`; the documented script dead-letters after the third failure."""
    broker = broker_with({"on_failure": SEED_ON_FAILURE})
    broker.enqueue("q", b"")
    for _ in range(3):
        assert broker.queue("q.dlq").waiting == 0
        broker.nack(broker.lease("q", wait_ms=10_000)[0])
    assert broker.queue("q.dlq").waiting == 1


def test_045_the_delay_of_a_retry() -> None:
    """`delay_ms` delays the retry: 1 second after the first failure, 2 after the second."""
    broker = broker_with({"on_failure": SEED_ON_FAILURE})
    message_id = broker.enqueue("q", b"")
    for seconds in (1, 2):
        broker.nack(lease_one(broker))
        assert broker.get("q", message_id).due_ms == broker.clock.now_ms() + 1_000 * seconds
        broker.advance(1_000 * seconds)


def test_046_scripts_read_config() -> None:
    """`fila.get` and `fairlane.get` return a config value, or nil."""
    broker = broker_with({"on_enqueue": 'function on_enqueue() return { fairness_key = fila.get("k") or "nil" } end'})
    assert broker.get("q", broker.enqueue("q", b"")).fairness_key == "nil"
    broker.set_config("public:k", "v")
    assert broker.get("q", broker.enqueue("q", b"")).fairness_key == "v"


def test_047_the_default_time_limit() -> None:
    """A script may take 10 ms by default; one that loops for ever is stopped, and its message is enqueued."""
    assert "10 ms" in (fault_of("function on_enqueue() while true do end end") or "")
    broker = broker_with({"on_enqueue": "function on_enqueue() while true do end end"})
    assert broker.enqueue("q", b"")


def test_048_the_default_memory_limit() -> None:
    """A script may use 1 MiB by default."""
    script = "function on_enqueue() local t = {} while true do t[#t + 1] = {} end end"
    assert fault_of(script) == "used more than 1 MiB"


def test_049_the_default_breaker_threshold() -> None:
    """Three faults in a row open the breaker by default."""
    broker = broker_with({"on_enqueue": "function on_enqueue() error('no') end"})
    states = []
    for _ in range(4):
        states.append(broker.hook_statistics("q").is_open)
        broker.enqueue("q", b"")
    assert states == [False, False, False, True]


def test_050_the_default_breaker_cooldown() -> None:
    """The breaker stays open for 10 seconds by default."""
    broker = broker_with({"on_enqueue": "function on_enqueue() error('no') end"})
    for _ in range(3):
        broker.enqueue("q", b"")
    broker.advance(9_999)
    broker.enqueue("q", b"")
    assert broker.hook_statistics("q").faults == 3
    broker.advance(1)
    broker.enqueue("q", b"")
    assert broker.hook_statistics("q").faults == 4


def test_051_filas_names_of_the_limits() -> None:
    """The settings have Fila's names, too: `lua.default_timeout_ms` and the other three."""
    file = """[lua]
    default_timeout_ms = 20
    default_memory_limit_bytes = 2097152
    circuit_breaker_threshold = 5
    circuit_breaker_cooldown_ms = 30000
    """
    broker = load(file, {}, {}).broker
    assert (broker.hook_timeout_ms, broker.hook_memory_bytes_max) == (20, 2_097_152)
    assert (broker.hook_breaker_threshold, broker.hook_breaker_cooldown_ms) == (5, 30_000)


def test_052_an_open_breaker_bypasses_scripts() -> None:
    """While the breaker is open no script runs; keys that the policy declares still apply."""
    broker = broker_with({"on_enqueue": "function on_enqueue() error('no') end", "fairness_key_from": "header:tenant"})
    for _ in range(5):
        message_id = broker.enqueue("q", b"", headers={"tenant": "acme"})
    assert broker.hook_statistics("q").bypassed == 2
    assert broker.get("q", message_id).fairness_key == "acme"


def test_053_a_breaker_resets_itself() -> None:
    """The breaker shows as closed when its cooldown ends, without another message."""
    broker = broker_with({"on_enqueue": "function on_enqueue() error('no') end"})
    for _ in range(3):
        broker.enqueue("q", b"")
    assert broker.hook_statistics("q").is_open
    broker.advance(10_000)
    assert not broker.hook_statistics("q").is_open
