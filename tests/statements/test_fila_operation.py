"""Fila, core concepts: dead letters, config, visibility."""

from __future__ import annotations

from fairlane.wire.grpc import admin_pb2 as admin
from fairlane.wire.grpc import broker_pb2 as broker
from tests.unit.broker.stepping import broker_with, buried, bury, lease_one, message, payloads
from tests.unit.cli.shell import Shell
from tests.unit.server.grpc_client import called, receipt
from tests.unit.server.local_server import run

ROUTED = """function on_enqueue(msg)
  return { fairness_key = fairlane.get("route:" .. (msg.headers.tenant or "")) or "nowhere" }
end"""


def test_054_the_name_of_the_dead_letter_queue() -> None:
    """The dead-letter queue of `orders` is `orders.dlq` unless the policy names another."""
    broker = broker_with()
    bury(broker)
    assert broker.queue("q.dlq").waiting == 1
    broker.create_queue("failures")
    broker.update_queue("q", {"dead_letter_queue": "failures"})
    bury(broker)
    assert (broker.queue("q.dlq").waiting, broker.queue("failures").waiting) == (1, 1)


def test_055_dead_letters_are_counted(shell: Shell) -> None:
    """`queue inspect orders.dlq` counts dead letters."""
    shell.broker.enqueue("jobs", b"")
    shell.broker.nack(shell.broker.lease("jobs")[0], intent="dead")
    assert shell.ok("-o", "json", "queue", "inspect", "jobs.dlq").json["waiting"] == 1


def test_056_a_number_of_dead_letters_is_redriven(shell: Shell) -> None:
    """`redrive orders.dlq --count 10` moves that many dead letters back."""
    for _ in range(12):
        shell.broker.enqueue("jobs", b"")
        shell.broker.nack(shell.broker.lease("jobs")[0], intent="dead")
    shell.ok("redrive", "jobs.dlq", "--count", "10")
    assert (shell.broker.queue("jobs").waiting, shell.broker.queue("jobs.dlq").waiting) == (10, 2)


def test_057_a_redrive_moves_pending_dead_letters_only() -> None:
    """A redrive moves dead letters that are not leased."""
    broker, _ = buried(5)
    broker.lease("q.dlq", 2)
    redrive = broker.redrive("q.dlq")
    broker.advance(1_000)
    assert broker.redrive_view(redrive.id).moved == 3
    assert broker.queue("q.dlq").leased == 2


def test_058_a_redrive_goes_to_the_source_queue() -> None:
    """A redrive moves dead letters back to the queue that they came from."""
    broker, ids = buried(1)
    broker.redrive("q.dlq")
    broker.advance(1_000)
    assert lease_one(broker).id == ids[0]


def test_059_a_redriven_message_is_enqueued_normally() -> None:
    """A redriven message passes the `on_enqueue` script again, as it is now."""
    broker = broker_with({"on_enqueue": 'function on_enqueue() return { fairness_key = "v1" } end'})
    bury(broker)
    broker.update_queue("q", {"on_enqueue": 'function on_enqueue() return { fairness_key = "v2" } end'})
    broker.redrive("q.dlq")
    broker.advance(1_000)
    assert lease_one(broker).fairness_key == "v2"


def test_060_config_survives_a_restart() -> None:
    """Config values are durable."""
    broker = broker_with()
    broker.set_config("public:k", "v")
    broker.reopen()
    assert broker.get_config("public:k") == "v"


def test_061_config_from_the_command_line(shell: Shell) -> None:
    """`config set` sets a value."""
    shell.ok("config", "set", "public:k", "v")
    assert shell.broker.get_config("public:k") == "v"


def test_062_config_over_grpc() -> None:
    """gRPC has SetConfig, GetConfig and ListConfig."""

    async def main() -> None:
        async with called() as client:
            request = admin.SetConfigRequest()
            request.values["public:k"] = "v"
            await client.admin.SetConfig(request)
            assert (await client.admin.GetConfig(admin.GetConfigRequest(key="public:k"))).value == "v"
            assert dict((await client.admin.ListConfig(admin.ListConfigRequest(prefix="public:"))).values) == {
                "public:k": "v"
            }

    run(main())


def test_063_config_get(shell: Shell) -> None:
    """`config get` prints a value, and exits with 4 if there is none."""
    shell.broker.set_config("public:k", "v")
    assert shell.ok("config", "get", "public:k").out.strip() == "v"
    assert shell.run("config", "get", "public:other").code == 4


def test_064_config_list_with_a_prefix(shell: Shell) -> None:
    """`config list --prefix` lists the values whose keys begin with a text."""
    shell.broker.set_config_many({"public:a": "1", "public:b": "2", "other": "3"})
    listed = shell.ok("-o", "json", "config", "list", "--prefix", "public:").json
    assert listed == {"public:a": "1", "public:b": "2"}


def test_065_scripts_read_flags_live() -> None:
    """A script reads a config value as it is at the moment, so flags act on the next message."""
    broker = broker_with({"on_enqueue": 'function on_enqueue() return { weight = tonumber(fairlane.get("w")) } end'})
    before = broker.get("q", broker.enqueue("q", b"")).weight
    broker.set_config("public:w", "99")
    assert (before, broker.get("q", broker.enqueue("q", b"")).weight) == (1, 99)


def test_066_throttle_rates_change_live() -> None:
    """A new rate acts on waiting messages at once."""
    broker = broker_with()
    broker.set_throttle("t", rate=1, burst=1)
    broker.enqueue_many("q", [message(throttles=("t",))] * 50)
    _, got = broker.attach("q", credit=100)
    broker.advance(1_000)
    assert len(got) <= 2
    broker.set_throttle("t", rate=None)
    broker.advance(1)
    assert len(got) == 50


def test_067_routing_by_config() -> None:
    """Config can route: a script looks up the fairness key of a tenant."""
    broker = broker_with({"on_enqueue": ROUTED})
    broker.set_config("public:route:acme", "premium")
    assert broker.get("q", broker.enqueue("q", b"", headers={"tenant": "acme"})).fairness_key == "premium"


def test_068_the_visibility_timeout_of_a_queue() -> None:
    """A queue has a visibility timeout from its creation on."""
    broker = broker_with({"visibility_timeout_ms": 1_234})
    broker.enqueue("q", b"")
    assert lease_one(broker).expires_ms == broker.clock.now_ms() + 1_234


def test_069_the_visibility_timeout_from_the_command_line(shell: Shell) -> None:
    """`queue create --visibility-timeout 30000` takes milliseconds, or a time such as `30s`."""
    shell.ok("queue", "create", "one", "--visibility-timeout", "45000")
    shell.ok("queue", "create", "two", "--visibility-timeout", "45s")
    assert [shell.broker.queue(name).policy.visibility_timeout_ms for name in ("one", "two")] == [45_000, 45_000]


def test_070_a_leased_message_goes_to_no_other_consumer() -> None:
    """While a message is leased, no other consumer gets it."""
    broker = broker_with()
    broker.enqueue("q", b"")
    lease_one(broker)
    assert broker.lease("q", 9) == []


def test_071_a_lease_has_a_timer() -> None:
    """The timer of a lease begins with the lease, and `extend` starts it again."""
    broker = broker_with({"visibility_timeout_ms": 1_000})
    broker.enqueue("q", b"")
    delivery = lease_one(broker)
    broker.advance(900)
    assert broker.extend(delivery) == broker.clock.now_ms() + 1_000
    broker.advance(900)
    broker.ack(delivery)


def test_072_a_crash_of_a_consumer_loses_nothing() -> None:
    """The messages of a consumer that disappears are delivered again."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"1"), message(b"2")])
    consumer, got = broker.attach("q")
    assert len(got) == 2
    broker.detach(consumer)
    assert sorted(payloads(broker.lease("q", 9))) == [b"1", b"2"]


def test_073_consume_is_a_stream() -> None:
    """gRPC's Consume is a stream of deliveries with credit and acknowledgements."""

    async def main() -> None:
        async with called() as client:
            await client.enqueue(b"1", b"2")
            call = client.broker.Consume()
            await call.write(broker.ConsumeRequest(number=1, open=broker.ConsumeOpen(queue="orders", credit=1)))
            payloads: list[bytes] = []
            while len(payloads) < 2:
                for delivery in (await call.read()).deliveries:
                    payloads.append(delivery.payload)
                    acks = broker.AckItems(receipts=[receipt(delivery)])
                    await call.write(broker.ConsumeRequest(number=len(payloads) + 1, ack=acks))
            assert payloads == [b"1", b"2"]
            call.cancel()

    run(main())
