"""A store that several processes can reach has one owner, and a former owner can do nothing."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from fairlane.adapters.shared.ownership import OwnerProcess
from fairlane.errors import StoreFenced, StoreLocked
from fairlane.ports.store import Extent
from fairlane.server.watchdog import watching
from fairlane.testing.store_contract import commit_of, page_of
from tests.kit.waiting import wait_until

from .owned_stores import KINDS, HandClock, OwnedStore, Place, place_on

SHORT_MS = 500
LASTING_MS = 2_500
"""Long enough for a busy machine to send a heartbeat in time."""
ASKED = 70
"""How often a second process tries, at least every 50 ms: in total longer than the heartbeat timeout."""


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Place:
    return place_on(request.param, request.getfixturevalue(request.param))


def opens(store: OwnedStore) -> bool:
    try:
        store.recover()
    except StoreLocked:
        return False
    return True


def check_has_only(store: OwnedStore, *commits: int) -> None:
    """Check that a store has the commits of one record each that begin at these sequences, and no more."""
    assert [page.page for page in store.pages(0)] == [page_of(at, at + 1) for at in commits]


def test_a_store_is_not_taken_from_a_live_owner(place: Place) -> None:
    """A second process gets the owner and how long to wait in the error, and the first continues undisturbed."""
    first, second = place.store(owner="first"), place.store()
    first.recover()
    with pytest.raises(StoreLocked, match="'first'") as caught:
        second.recover()
    assert 0 < (caught.value.retry_after_ms or 0) <= 11_000
    first.write(commit_of(1, 1))
    first.sync()
    check_has_only(first, 1)
    first.close()


def test_a_closed_store_is_free_at_once(place: Place) -> None:
    """After a clean shutdown the next process need not wait."""
    first, second = place.store(), place.store()
    first.recover()
    first.write(commit_of(1, 1))
    first.close()
    assert second.recover() == Extent(first=1, base=1, next_sequence=2)
    second.close()


def test_a_silent_owner_is_taken_over_from_and_commits_nothing(place: Place) -> None:
    """An owner without heartbeats loses the store; everything it sends when it wakes up is refused."""
    first, second = place.store(heartbeat_timeout_ms=SHORT_MS), place.store()
    first.recover()
    first.write(commit_of(1, 1, bodies=[(1, b"one")]))
    first.sync()
    first.write(commit_of(2, 1, bodies=[(2, b"two")], dropped=[1]))
    wait_until(lambda: opens(second), what="The lease runs out")
    with pytest.raises(StoreFenced):
        first.sync()
    check_has_only(second, 1)
    assert second.bodies([1, 2]) == [b"one", None]
    second.write(commit_of(2, 1))
    second.sync()
    for call in (first.recover, first.check_owned, first.sync, first.renew, lambda: first.write(commit_of(3, 1))):
        with pytest.raises(StoreFenced):
            call()
    first.close()
    check_has_only(second, 1, 2)
    second.close()


def test_an_owner_that_wakes_up_late_is_fenced_even_after_the_new_one_has_cleaned_up(place: Place) -> None:
    """However much the new owner has written, merged, trimmed and deleted, the old one still commits nothing."""
    old, new = place.store(), place.store(force=True)
    old.recover()
    old.write(commit_of(1, 1))
    old.sync()
    old.write(commit_of(2, 1, bodies=[(2, b"late")]))
    new.recover()
    for sequence in range(2, 150):
        new.write(commit_of(sequence, 1, base=sequence, trim=sequence))
        new.sync()
    compact = getattr(new, "compact", lambda: False)
    while compact():
        pass
    with pytest.raises(StoreFenced):
        old.sync()
    assert new.bodies([2]) == [None]
    check_has_only(new, 149)
    old.close()
    new.close()
    third = place.store()
    assert third.recover() == Extent(first=149, base=149, next_sequence=150)
    check_has_only(third, 149)
    third.close()


def test_a_store_can_be_taken_by_force(place: Place) -> None:
    """With ``force`` a process takes the store of a live owner, which can commit nothing from then on."""
    first, second = place.store(), place.store(force=True)
    first.recover()
    second.recover()
    first.write(commit_of(1, 1))
    with pytest.raises(StoreFenced):
        first.sync()
    check_has_only(second)
    first.close()
    second.close()


def test_a_restarted_owner_need_not_wait(place: Place) -> None:
    """A process with the owner's name gets the store at once, and the earlier process is fenced."""
    first, again = place.store(owner="node-a"), place.store(owner="node-a")
    first.recover()
    again.recover()
    first.write(commit_of(1, 1))
    with pytest.raises(StoreFenced):
        first.sync()
    first.close()
    again.close()


def test_taking_a_store_back_and_forth_loses_nothing(place: Place) -> None:
    """Through many forced takeovers, each owner finds all synced commits, and earlier owners stay fenced."""
    owners = []
    for sequence in range(1, 8):
        owner = place.store(force=True)
        assert owner.recover().next_sequence == sequence
        owner.write(commit_of(sequence, 1))
        owner.sync()
        owners.append(owner)
    for owner in owners[:-1]:
        with pytest.raises(StoreFenced):
            owner.renew()
    check_has_only(owners[-1], *range(1, 8))
    for owner in owners:
        owner.close()


def test_commits_are_heartbeats(place: Place) -> None:
    """An owner that commits regularly keeps the store beyond its timeout without other heartbeats."""
    first, second = place.store(heartbeat_timeout_ms=LASTING_MS), place.store()
    first.recover()
    tries = itertools.count()
    sequence = itertools.count(1)

    def is_still_refused_after_a_while() -> bool:
        first.write(commit_of(next(sequence), 1))
        first.sync()
        assert not opens(second)
        return next(tries) >= ASKED

    wait_until(is_still_refused_after_a_while, what="The second process tries repeatedly")
    first.close()


def test_an_idle_owner_is_kept_by_its_thread(place: Place) -> None:
    """An owner without any commits keeps the store beyond its timeout."""
    first, second = place.store(heartbeat_timeout_ms=LASTING_MS, sends_heartbeats=True), place.store()
    first.recover()
    tries = itertools.count()

    def is_still_refused_after_a_while() -> bool:
        assert not opens(second)
        return next(tries) >= ASKED

    wait_until(is_still_refused_after_a_while, what="The second process tries repeatedly")
    first.check_owned()
    first.close()


def test_an_owner_whose_event_loop_hangs_is_taken_over(place: Place) -> None:
    """While the loop is blocked the thread sends no heartbeats; when the process goes on, it finds itself fenced."""
    second = place.store()

    async def hang() -> None:
        with watching() as watchdog:
            process = OwnerProcess(stuck_s=watchdog.stuck_s)
            first = place.store(heartbeat_timeout_ms=SHORT_MS, sends_heartbeats=True, process=process)
            first.recover()
            wait_until(lambda: opens(second), what="The second process takes over")  # blocks the loop until then
            with pytest.raises(StoreFenced):
                first.renew()

    asyncio.run(hang())
    second.write(commit_of(1, 1))
    second.sync()
    check_has_only(second, 1)
    second.close()


def test_an_owner_that_was_stopped_asks_before_it_answers(place: Place) -> None:
    """After a pause longer than its timeout an owner checks whether it still is one."""
    clock = HandClock()
    first = place.store(clock=clock, heartbeat_timeout_ms=10_000)
    first.recover()
    clock.now_s += 60
    first.check_owned()
    second = place.store(force=True)
    second.recover()
    first.check_owned()  # it has asked just now, and relies on that
    clock.now_s += 60
    with pytest.raises(StoreFenced):
        first.check_owned()
    first.close()
    second.close()


def test_an_owner_that_is_known_to_have_ended_is_not_waited_for(place: Place) -> None:
    """Evidence is about a process: another one of the same owner is waited for."""
    first = place.store(owner="a", process=OwnerProcess(name="a1"))
    first.recover()
    with pytest.raises(StoreLocked):
        place.store(owner="b", process=OwnerProcess(ended=frozenset({"a", "a0", "a2"}))).recover()
    second = place.store(owner="b", process=OwnerProcess(name="b1", ended=frozenset({"a1"})))
    second.recover()
    with pytest.raises(StoreFenced):
        first.renew()
    with pytest.raises(StoreLocked):
        place.store(owner="c", process=OwnerProcess(ended=frozenset({"a1"}))).recover()
    first.close()
    second.close()


def test_an_owner_in_doubt_asks_before_it_answers(place: Place) -> None:
    """A process that lives and was taken for ended finds out, although its own timeout is far away."""
    doubts: list[str] = []
    process = OwnerProcess(name="a1", is_in_doubt=lambda: bool(doubts))
    first = place.store(heartbeat_timeout_ms=600_000, process=process)
    first.recover()
    second = place.store(process=OwnerProcess(ended=frozenset({"a1"})))
    second.recover()
    first.check_owned()
    doubts.append("the board is out of reach")
    with pytest.raises(StoreFenced):
        first.check_owned()
    first.close()
    second.close()


def test_an_owner_that_recovers_stays_the_owner(place: Place) -> None:
    """Reopening after a failure keeps the ownership, with all synced commits."""
    store = place.store()
    store.recover()
    store.write(commit_of(1, 1))
    store.sync()
    assert store.recover() == Extent(first=1, base=1, next_sequence=2)
    store.write(commit_of(2, 1))
    store.sync()
    check_has_only(store, 1, 2)
    store.close()
