"""Real nodes over one real store, killed, stopped, cut off and misled, under load; and what their clients saw.

What is short runs with every gate. ``python -m tests.system.cluster_chaos stop 20`` is the long run by hand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import BUCKET
from tests.kit.servers.azurite import AzuriteServer
from tests.kit.servers.nodes import Cluster
from tests.kit.servers.stores import PostgresServer, S3Server, ServerMissing

from .cluster_audit import Findings
from .cluster_chaos import (
    LARGE_BYTES,
    Chaos,
    cluster_cut_at,
    cluster_of,
    cut_off,
    hanging,
    jumping,
    kill_postgres,
    run,
    skewed,
    unfenced,
)
from .cluster_cut import Cut

STOPS_A_DAY, STOPS_IN_ALL = 2, 20
JUMPS = 5


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that may be killed."""
    try:
        server = PostgresServer(fsync=True)
    except ServerMissing as error:
        pytest.skip(str(error))
    with server:
        yield server


def cluster_in(server: PostgresServer, folder: Path) -> Cluster:
    """Return three nodes in a namespace of their own."""
    return cluster_of(3, f"{server.url}&namespace={folder.name}", folder)


def clean(found: Findings) -> Findings:
    """Print the findings, and assert that there are no violations."""
    print("\n" + "\n".join(f"{count:8,} {kind}" for kind, count in found.counts.most_common()))
    assert found.faults == [], found.faults[:5]
    assert found.counts["acks done"] > 300
    return found


def test_an_owner_that_is_stopped_changes_nothing_when_it_wakes(
    durable_postgres: PostgresServer, tmp_path: Path
) -> None:
    """An owner that resumes after a takeover, with pending requests, commits nothing."""
    found = clean(run(cluster_in(durable_postgres, tmp_path), Chaos.stop_owner, times=STOPS_A_DAY))
    assert found.counts["moves"] >= STOPS_A_DAY


def test_an_owner_whose_event_loop_hangs_is_taken_over(durable_postgres: PostgresServer, tmp_path: Path) -> None:
    """Its threads could renew the ownership and don't, so others take over; when it wakes, it commits nothing."""
    found = clean(run(hanging(durable_postgres, tmp_path), Chaos.hang_owner, times=STOPS_A_DAY))
    assert found.counts["moves"] >= STOPS_A_DAY


def test_queues_of_a_killed_node_go_on_elsewhere(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """Nothing is lost, duplicated or reordered when an owner is killed, and then PostgreSQL itself."""

    async def both(chaos: Chaos) -> None:
        await chaos.kill_owner()
        await kill_postgres(chaos, own_postgres)

    found = clean(run(cluster_in(own_postgres, tmp_path), both, times=1))
    assert found.counts["moves"] >= 1
    assert found.counts["takeovers"] >= 1


def test_a_queue_that_is_split_while_it_is_in_use(durable_postgres: PostgresServer, tmp_path: Path) -> None:
    """Nothing is lost, duplicated or stuck while queues get more and fewer partitions, whose owners are killed."""
    clean(run(cluster_in(durable_postgres, tmp_path), Chaos.split_and_kill, times=2))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("follows", [True, False])
def test_queues_that_are_split_again_and_again(
    durable_postgres: PostgresServer, tmp_path: Path, *, follows: bool
) -> None:
    """However often the number of partitions changes, no client loses anything, including clients of a single node."""
    clean(run(cluster_in(durable_postgres, tmp_path), Chaos.split_and_kill, times=6, seed=3, follows=follows))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("times", "padding_bytes"), [(STOPS_IN_ALL, 0), (6, LARGE_BYTES)])
def test_owners_that_are_stopped_many_times(
    durable_postgres: PostgresServer, tmp_path: Path, times: int, padding_bytes: int
) -> None:
    """Owners that are suspended, replaced and resumed leave no trace that a client could see, and no lock."""
    cluster = cluster_in(durable_postgres, tmp_path)
    found = clean(run(cluster, Chaos.stop_owner, times=times, seed=2, padding_bytes=padding_bytes))
    assert found.counts["moves"] >= times


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_auditor_finds_out_owners_that_are_not_fenced(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """Without fencing, resumed owners continue, and clients see ids that were issued twice."""
    found = run(unfenced(own_postgres, tmp_path), Chaos.stop_owner, times=2, is_drained=False)
    assert any("the same id" in fault for fault in found.faults)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nodes_that_are_restarted_in_turn(durable_postgres: PostgresServer, tmp_path: Path) -> None:
    """Nodes that shut down cleanly hand over their groups, and every enqueue is answered."""
    found = clean(run(cluster_in(durable_postgres, tmp_path), Chaos.restart_all, times=1))
    assert found.counts["enqueues without an answer"] == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_postgres_that_is_killed_again_and_again(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """All nodes recover by themselves, and nothing that was answered is lost."""
    clean(run(cluster_in(own_postgres, tmp_path), lambda chaos: kill_postgres(chaos, own_postgres), times=10))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_node_that_is_cut_off_from_its_store(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """While a node is cut off from PostgreSQL, others take over; it comes back and does no harm."""
    with Cut(own_postgres) as cut:
        cluster = cluster_cut_at(own_postgres, cut, tmp_path)
        clean(run(cluster, lambda chaos: cut_off(chaos, cut, cluster.nodes[-1]), times=2))


def test_a_clock_that_jumps_changes_nothing(durable_postgres: PostgresServer, tmp_path: Path) -> None:
    """Five times the clock of an owner jumps by an hour and back under load: no node is thought dead, no throttle gives
    more, and nothing is lost or duplicated."""
    found = clean(run(jumping(durable_postgres, tmp_path), Chaos.jump_clock, times=JUMPS))
    assert found.counts["takeovers"] == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_clocks_that_are_wrong_by_half_a_minute(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """Queues that move between nodes with clocks ahead and behind lose and duplicate nothing."""
    clean(run(skewed(own_postgres, tmp_path), Chaos.mislead, times=3, is_throttled=False))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_requests_that_nodes_ask_each_other(durable_postgres: PostgresServer, tmp_path: Path) -> None:
    """Clients of a single node over plain HTTP lose nothing when queues move and nodes die or restart."""
    clean(run(cluster_in(durable_postgres, tmp_path), Chaos.kill_move_and_roll, times=1, follows=False))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("step", [Chaos.kill_owner, Chaos.stop_owner])
@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_two_nodes_over_objects(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path, step: Callable[[Chaos], Awaitable[None]]
) -> None:
    """Over S3 and Azure, too, the queues of a killed or suspended node continue on the other, without violations."""
    server: S3Server | AzuriteServer = request.getfixturevalue(kind)
    cluster = cluster_of(2, server.url(BUCKET, tmp_path.name) + "&window_ms=5", tmp_path)
    found = clean(run(cluster, step, times=2, is_throttled=False))
    assert found.counts["moves"] >= 1
