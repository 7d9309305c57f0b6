"""How a queue is split, on the board: changes by several at once, and partitions that stay while they are needed."""

from __future__ import annotations

import asyncio

import msgspec

from fairlane.cluster.entries import SplitEntry
from tests.unit.cluster.in_process import cluster_of
from tests.unit.server.local_server import run


def test_changes_of_a_split_build_on_each_other() -> None:
    """Nodes that change it at once each see what the others have made of it."""

    async def main() -> None:
        async with cluster_of("abc") as cluster:

            def one_more(entry: SplitEntry | None) -> SplitEntry:
                made = 1 if entry is None else entry.made
                return SplitEntry(partitions=1, made=made + 1)

            changing = [member.node.changes.change_split("orders", one_more) for member in cluster.members.values()]
            await asyncio.gather(*changing)
            view = await cluster["a"].node.board.refresh()
            assert view.splits["orders"].made == 4
            await cluster["b"].node.changes.change_split("orders", lambda _entry: None)
            assert (await cluster["a"].node.board.refresh()).splits == {}

    run(main())


def test_a_partition_that_its_queue_has_stays_on_the_board() -> None:
    """Only one beyond those is taken from it, whoever thought that it was gone."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            changes, board = cluster["a"].node.changes, cluster["a"].node.board
            for at in (1, 2):
                await changes.list_queue(f"orders~{at}", group=f"orders~{at}")
            entry = SplitEntry(partitions=2, made=2)
            await changes.change_split("orders", lambda _entry: entry)
            for at in (1, 2):
                await changes.unlist_queue(f"orders~{at}")
            assert list((await board.refresh()).groups) == ["orders~1"]
            await changes.change_split("orders", lambda _entry: msgspec.structs.replace(entry, partitions=1, made=1))
            await changes.unlist_queue("orders~1")
            assert list((await board.refresh()).groups) == []

    run(main())
