"""Every board keeps the contract: entries are shared by all nodes, changed by compare-and-set, and changes wake
waits."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlane.adapters.memory.board import MemoryBoard
from fairlane.adapters.postgres.board import PostgresBoard
from fairlane.adapters.s3.board import S3Board
from fairlane.adapters.s3.bucket import AzureContainer, S3Bucket
from fairlane.errors import InvalidArgument, StoreFailed
from fairlane.ports.board import Board, Entry
from tests.conftest import BUCKET
from tests.kit.waiting import PATIENCE_S, wait_until

KINDS = ("memory", "postgres", "s3", "azure")
_numbers = itertools.count(1)
Place = Callable[[], Board]


@pytest.fixture(params=KINDS)
def places(request: pytest.FixtureRequest) -> Iterator[Callable[[], Place]]:
    """Provide factories of boards: each call returns one more handle on the same board."""
    opened: list[Board] = []

    def place() -> Place:
        name = f"board-{next(_numbers)}"
        first = MemoryBoard()

        def board() -> Board:
            opened.append(_board(request, name, first))
            return opened[-1]

        return board

    yield place
    for board in opened:
        board.close()


def _board(request: pytest.FixtureRequest, name: str, first: MemoryBoard) -> Board:
    chance = random.Random(1)
    if request.param == "memory":
        return first.another()
    server = request.getfixturevalue(request.param)
    if request.param == "postgres":
        return PostgresBoard(server.url, namespace=name, network_timeout_ms=10_000, chance=chance)
    if request.param == "azure":
        return S3Board(AzureContainer(f"{BUCKET}/{name}", endpoint=server.endpoint), chance=chance)
    return S3Board(S3Bucket(f"{BUCKET}/{name}", endpoint=server.endpoint, is_anonymous=True), chance=chance)


@pytest.fixture
def place(places: Callable[[], Place]) -> Place:
    return places()


def made(board: Board, name: str, value: bytes) -> Entry:
    entry = board.put(name, value, version=None)
    assert entry is not None
    return entry


def test_an_entry_is_visible_to_all_nodes(place: Place) -> None:
    """A new entry is on the board for all nodes, as it was put; a new board is empty."""
    one, other = place(), place()
    assert one.read() == other.read() == {}
    entry = made(one, "node/a", b'{"beat": 1}')
    assert one.read() == other.read() == {"node/a": entry}
    assert entry.value == b'{"beat": 1}'


def test_an_entry_is_changed_only_under_its_version(place: Place) -> None:
    """A change under the current version is made; under an earlier one or none it is not, and nothing is lost."""
    one, other = place(), place()
    first = made(one, "group/x", b"1")
    second = other.put("group/x", b"2", version=first.version)
    assert second is not None
    assert second.version != first.version
    assert one.put("group/x", b"3", version=first.version) is None
    assert one.put("group/x", b"3", version=None) is None
    assert not one.remove("group/x", version=first.version)
    assert one.read() == {"group/x": second}


def test_a_missing_entry_is_neither_changed_nor_removed(place: Place) -> None:
    """The version of a removed entry is invalid; an entry created again has another version, even with the same
    value."""
    one, other = place(), place()
    first = made(one, "config/k", b"1")
    assert other.remove("config/k", version=first.version)
    assert one.read() == {}
    assert one.put("config/k", b"2", version=first.version) is None
    assert not one.remove("config/k", version=first.version)
    again = made(other, "config/k", b"1")
    assert again.version != first.version
    assert one.put("config/k", b"2", version=first.version) is None
    assert one.read() == {"config/k": again}


def test_a_value_that_comes_back_has_another_version(place: Place) -> None:
    """A node that read a value before it was changed and changed back cannot change it."""
    board = place()
    first = made(board, "budget/t", b"1")
    second = board.put("budget/t", b"2", version=first.version)
    assert second is not None
    third = board.put("budget/t", b"1", version=second.version)
    assert third is not None
    assert board.put("budget/t", b"9", version=first.version) is None
    assert board.read() == {"budget/t": third}


@pytest.mark.parametrize(
    "name",
    ["node/a.b-c_d", "config/throttle:api:rate", 'config/weight:q:käse %=/?#[] \\ "x"', "x", "c" * 600, "ß" * 500],
)
def test_names_are_preserved(place: Place, name: str) -> None:
    """Any printable name is accepted and returned unchanged."""
    board = place()
    entry = made(board, name, b"")
    assert place().read() == {name: entry}
    assert board.remove(name, version=entry.version)
    assert place().read() == {}


@pytest.mark.parametrize("name", ["", "a\nb", "c" * 701])
def test_invalid_names_are_refused(place: Place, name: str) -> None:
    """Empty, too long and unprintable names are refused."""
    with pytest.raises(InvalidArgument, match="printable name"):
        place().put(name, b"1", version=None)


def test_values_may_be_large(place: Place) -> None:
    """The longest value of the config fits, with any bytes."""
    value = bytes(range(256)) * 1024
    board = place()
    made(board, "config/k", value)
    assert place().read()["config/k"].value == value


def test_one_of_several_concurrent_changes_wins(place: Place) -> None:
    """When four nodes increment one entry, no increment is lost or made twice."""
    boards, turns = [place() for _ in range(4)], 8
    made(boards[0], "count", b"0")

    def count_up(board: Board) -> list[int]:
        won: list[int] = []
        while len(won) < turns:
            entry = board.read()["count"]
            wanted = int(entry.value) + 1
            if board.put("count", str(wanted).encode(), version=entry.version) is not None:
                won.append(wanted)
        return won

    with ThreadPoolExecutor(len(boards)) as pool:
        won = sorted(itertools.chain.from_iterable(pool.map(count_up, boards)))
    assert won == list(range(1, len(boards) * turns + 1))


def test_one_of_several_concurrent_creations_wins(place: Place) -> None:
    """An entry that several nodes create at once is created by one of them, also if it was removed before."""
    boards = [place() for _ in range(4)]
    for round_ in range(3):
        with ThreadPoolExecutor(len(boards)) as pool:
            values = [f"{round_} {at}".encode() for at in range(len(boards))]
            put = list(pool.map(lambda board, value: board.put("x", value, version=None), boards, values))
        winners = [entry for entry in put if entry is not None]
        assert len(winners) == 1
        assert boards[0].read() == {"x": winners[0]}
        assert boards[1].remove("x", version=winners[0].version)


def test_a_wait_is_ended_by_another_node(place: Place) -> None:
    """A change of another node ends the wait long before its timeout, and can be read then."""
    waiting, other = place(), place()
    waiting.read()
    seen = threading.Event()

    def wait() -> None:
        while "node/b" not in waiting.read():
            waiting.wait(600)
        seen.set()

    thread = threading.Thread(target=wait)
    thread.start()
    made(other, "node/b", b"1")
    assert seen.wait(PATIENCE_S)
    thread.join()


def test_a_wait_is_ended_by_its_own_node(place: Place) -> None:
    """A change that another thread makes through the same board ends the wait too."""
    board = place()
    board.read()
    for number in range(3):
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(made, board, f"x{number}", b"1").result(timeout=PATIENCE_S)
        board.wait(600)
        assert f"x{number}" in board.read()


def test_a_wait_ends_when_its_time_is_over_or_the_board_is_closed(place: Place) -> None:
    """A wait ends if nothing changes, and when the board is closed meanwhile."""
    board = place()
    board.read()
    board.wait(0)
    board.wait(0.01)

    def wait_twice() -> None:
        board.wait(600)
        board.wait(600)

    thread = threading.Thread(target=wait_twice)
    thread.start()
    board.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_closed_board_raises(place: Place) -> None:
    """A closed board refuses every call, and the other nodes' boards still work."""
    board, other = place(), place()
    entry = made(board, "x", b"1")
    board.close()
    board.close()
    calls: list[Callable[[], object]] = [
        board.read,
        lambda: board.put("x", b"2", version=entry.version),
        lambda: board.remove("x", version=entry.version),
    ]
    for call in calls:
        with pytest.raises(StoreFailed, match="closed"):
            call()
    assert other.read() == {"x": entry}


def test_processes_that_are_connected_have_not_ended(place: Place) -> None:
    """Nobody is reported while it is connected, or was never seen, and nobody who attends is in doubt."""
    boards = [place(), place()]
    for number, board in enumerate(boards):
        board.attend(f"p{number}", lambda: None)
        board.read()
    for board in boards:
        wait_until(board.is_attending, what="A look has shown it")
        assert board.ended(["p0", "p1", "p2"]) == frozenset()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.sampled_from(("put", "remove", "stale")))))
def test_it_agrees_with_a_dict(places: Callable[[], Place], steps: list[tuple[bool, str, str]]) -> None:
    """For any operations of two nodes in any order, the board equals a dict."""
    place = places()
    boards = place(), place()
    model: dict[str, Entry] = {}
    dead: list[str] = ["0"]
    for number, (which, name, what) in enumerate(steps):
        board, known = boards[which], model.get(name)
        if what == "stale":
            assert board.put(name, b"stale", version=dead[-1]) is None
            assert not board.remove(name, version=dead[-1])
        elif what == "put":
            entry = board.put(name, str(number).encode(), version=None if known is None else known.version)
            assert entry is not None
            model[name] = entry
        elif known is not None:
            assert board.remove(name, version=known.version)
            del model[name]
        if known is not None and model.get(name) != known:
            dead.append(known.version)
    assert boards[0].read() == boards[1].read() == model
