"""The keys of a queue as all who watch it see them: one look for all, and not too often."""

from __future__ import annotations

import pytest

from fairlane.errors import QueueNotFound
from fairlane.model.message import NewMessage
from fairlane.server.live.keys import KeyBoard, KeyWish
from fairlane.server.live.windows import KeyWindows

from .house import House, opened, run


class Wall:
    """A clock on the wall that moves when it is told to."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def board(house: House, clock: Wall) -> KeyBoard:
    """Make a board of the queue."""
    return KeyBoard(house.broker, "orders", KeyWindows(house.broker.now_ms()), clock=clock)


def test_one_look_serves_all_who_watch() -> None:
    """Viewers of one edition see the same picture if they wish for the same, and one that has seen it gets none."""

    async def main() -> None:
        async with opened() as house:
            await house.broker.enqueue_many("orders", [NewMessage(fairness_key=key) for key in ("acme", "bakery")])
            shown, wish = board(house, Wall()), KeyWish(keys_max=10)
            edition, first = await shown.shown(wish, seen=0)
            assert first is not None
            assert (await shown.shown(wish, seen=0)) == (edition, first)
            assert (await shown.shown(wish, seen=0))[1] is first
            assert (await shown.shown(wish, seen=edition)) == (edition, None)
            _, searched = await shown.shown(KeyWish(keys_max=10, match="BAK"), seen=0)
            assert searched is not None
            assert [each.key for each in searched.keys] == ["bakery"]

    run(main())


def test_a_new_edition_comes_when_time_has_passed() -> None:
    """What has come meanwhile is not told until then, however often somebody asks."""

    async def main() -> None:
        async with opened() as house:
            clock = Wall()
            shown, wish = board(house, clock), KeyWish(keys_max=10)
            edition, _ = await shown.shown(wish, seen=0)
            await house.broker.enqueue("orders", NewMessage(fairness_key="late"))
            assert (await shown.shown(wish, seen=edition))[1] is None
            clock.now_s += 3_600
            after, picture = await shown.shown(wish, seen=edition)
            assert picture is not None
            assert ([each.key for each in picture.keys], after) == (["late"], edition + 1)

    run(main())


def test_who_watches_a_queue_that_goes_is_told() -> None:
    """So is everybody else who watches it: nobody waits for a look that failed."""

    async def main() -> None:
        async with opened() as house:
            shown, wish = board(house, Wall()), KeyWish(keys_max=10)
            await house.broker.delete_queue("orders")
            for _ in range(2):
                with pytest.raises(QueueNotFound):
                    await shown.shown(wish, seen=0)

    run(main())
