"""Sampling the keys of a queue: one sample for all viewers, and not too often."""

from __future__ import annotations

import pytest

from fairlane.errors import QueueNotFound
from fairlane.model.message import NewMessage
from fairlane.server.live.keys import KeyQuery, KeySampler
from fairlane.server.live.windows import KeyWindows

from .local_server import LocalServer, opened, run


class Wall:
    """A wall clock that moves only when a test moves it."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def sampler_of(server: LocalServer, clock: Wall) -> KeySampler:
    """Create a sampler of the queue."""
    return KeySampler(server.broker, "orders", KeyWindows(server.broker.now_ms()), clock=clock)


def test_one_sample_serves_all_viewers() -> None:
    """Viewers with the same query get the same snapshot of a version, and a viewer that has seen it gets none."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue_many("orders", [NewMessage(fairness_key=key) for key in ("acme", "bakery")])
            sampler, query = sampler_of(server, Wall()), KeyQuery(keys_max=10)
            version, first = await sampler.snapshot(query, seen=0)
            assert first is not None
            assert (await sampler.snapshot(query, seen=0)) == (version, first)
            assert (await sampler.snapshot(query, seen=0))[1] is first
            assert (await sampler.snapshot(query, seen=version)) == (version, None)
            _, searched = await sampler.snapshot(KeyQuery(keys_max=10, match="BAK"), seen=0)
            assert searched is not None
            assert [each.key for each in searched.keys] == ["bakery"]

    run(main())


def test_a_new_version_appears_only_after_the_idle_time() -> None:
    """Arrivals do not appear before that, however often viewers ask."""

    async def main() -> None:
        async with opened() as server:
            clock = Wall()
            sampler, query = sampler_of(server, clock), KeyQuery(keys_max=10)
            version, _ = await sampler.snapshot(query, seen=0)
            await server.broker.enqueue("orders", NewMessage(fairness_key="late"))
            assert (await sampler.snapshot(query, seen=version))[1] is None
            clock.now_s += 3_600
            after, snapshot = await sampler.snapshot(query, seen=version)
            assert snapshot is not None
            assert ([each.key for each in snapshot.keys], after) == (["late"], version + 1)

    run(main())


def test_viewers_of_a_deleted_queue_get_an_error() -> None:
    """Every viewer gets it: none waits for a sample that failed."""

    async def main() -> None:
        async with opened() as server:
            sampler, query = sampler_of(server, Wall()), KeyQuery(keys_max=10)
            await server.broker.delete_queue("orders")
            for _ in range(2):
                with pytest.raises(QueueNotFound):
                    await sampler.snapshot(query, seen=0)

    run(main())
