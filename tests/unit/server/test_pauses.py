"""A tenant that an operator pauses for five minutes is paused, not starved: in the dashboard's feed and in metrics."""

from __future__ import annotations

from fairlane.model.message import NewMessage
from fairlane.testing.clock import FakeClock

from .local_server import opened, run
from .test_live import viewing
from .test_metrics import values

MINUTE_MS = 60_000


def test_a_pause_of_five_minutes_is_a_pause() -> None:
    """The dashboard names the pause and finds service fair; metrics count five minutes as paused and none as turn."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(clock=clock) as server:
            broker = server.broker
            await broker.enqueue("orders", NewMessage(fairness_key="acme"))
            await broker.pause("orders", key="acme")
            async with viewing(server, "queue=orders") as feed:
                await feed.read()
                for _ in range(5):
                    await broker.enqueue("orders", NewMessage(fairness_key="bakery"))
                    await broker.ack_many("orders", await broker.lease("orders"))
                snapshot = await feed.until(lambda each: "queue" in each and each["queue"]["windows"][0]["served"] == 5)
                keys = {each["key"]: each for each in snapshot["queue"]["keys"]}
                assert keys["acme"]["held_by"] == {"kind": "pause"}
                assert [key["windows"][0][2] for key in (keys["acme"], keys["bakery"])] == [0, 5]
                assert snapshot["queue"]["windows"][0]["jain"] == 1
            clock.advance(5 * MINUTE_MS)
            await broker.resume("orders", key="acme")
            (delivery,) = await broker.lease("orders")
            assert delivery.fairness_key == "acme"
            seen = await values(server)
            assert seen["fairlane_wait_seconds_total", ("orders", "paused")] == 300
            assert seen["fairlane_wait_seconds_total", ("orders", "turn")] == 0

    run(main())
