"""How much groups have to do."""

from __future__ import annotations

from fairlane.assembly import open_async_broker
from fairlane.cluster.groups import Groups
from fairlane.cluster.load import GroupLoads
from tests.unit.server.local_server import run


def test_a_load_is_records_a_second_smoothed() -> None:
    """A group that was just opened has none; then it rises slowly, and one that comes back begins anew."""

    async def main() -> None:
        async with await open_async_broker() as broker:
            await broker.create_queue("orders")
            groups = Groups(node="a", clock_ms=lambda: 0)
            loads = GroupLoads(groups)
            groups.add("orders", broker)
            assert loads.rates(0.0) == {"orders": 0.0}
            for _ in range(100):
                await broker.enqueue("orders", b"x")
            risen = loads.rates(10.0)["orders"]
            assert 2.0 < risen < 4.0  # a third of ten a second
            assert loads.rates(100.0)["orders"] < 1.0
            groups.take_out("orders")
            assert loads.rates(101.0) == {}
            for _ in range(100):
                await broker.enqueue("orders", b"x")
            groups.add("orders", broker)
            assert loads.rates(101.1) == {"orders": 0.0}

    run(main())


def test_demand_is_the_weights_of_the_queues_that_are_held_up() -> None:
    """A long backlog asks for no more than a short one, and a queue that the throttle does not hold up for nothing."""

    async def main() -> None:
        async with await open_async_broker() as broker:
            await broker.set_throttle("api", rate=0.001, burst=1)
            await broker.set_config("throttle_weight:orders:api", "3")
            await broker.set_config("throttle_weight:idle:api", "50")
            for queue, count in (("orders", 2), ("mails", 900), ("idle", 0), ("others", 900)):
                await broker.create_queue(queue)
                for _ in range(count):
                    await broker.enqueue(queue, b"x", throttles=() if queue == "others" else ("api",))
                await broker.lease(queue, 2)
            groups = Groups(node="a", clock_ms=lambda: 0)
            groups.add("orders", broker)
            assert GroupLoads(groups).demand() == {"api": {"orders": 4}}
            await broker.set_config("throttle_weight:mails:api", "5")
            assert GroupLoads(groups).demand() == {"api": {"orders": 8}}

    run(main())


def test_demand_for_a_pattern_of_throttles_is_one_number() -> None:
    """However many tenants wait for tokens, a heartbeat carries the pattern once; a name of its own is by itself."""

    async def main() -> None:
        async with await open_async_broker() as broker:
            await broker.create_queue("orders")
            for name in ("tenant-*", "tenant-vip"):
                await broker.set_throttle(name, rate=0.001, burst=1)
            for tenant in ("tenant-a", "tenant-b", "tenant-vip"):
                for _ in range(2):
                    await broker.enqueue("orders", b"x", throttles=(tenant,))
            assert len(await broker.lease("orders", 10)) == 3
            groups = Groups(node="a", clock_ms=lambda: 0)
            groups.add("orders", broker)
            assert GroupLoads(groups).demand() == {"tenant-*": {"orders": 1}, "tenant-vip": {"orders": 1}}

    run(main())
