"""Every board keeps the contract: what is put is there for all, by compare-and-set, and who waits hears of it."""

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
from fairlane.adapters.s3.bucket import S3Bucket
from fairlane.errors import InvalidArgument, StoreFailed
from fairlane.ports.board import Board, Entry
from tests.conftest import BUCKET
from tests.kit.servers.stores import PostgresServer, S3Server

KINDS = ("memory", "postgres", "s3")
_numbers = itertools.count(1)
Place = Callable[[], Board]


@pytest.fixture(params=KINDS)
def places(request: pytest.FixtureRequest, postgres: PostgresServer, s3: S3Server) -> Iterator[Callable[[], Place]]:
    """Give places for boards: each, when called, gives one more handle on its board."""
    opened: list[Board] = []

    def place() -> Place:
        name = f"board-{next(_numbers)}"
        first = MemoryBoard()

        def board() -> Board:
            opened.append(_board(request.param, name, first, postgres, s3))
            return opened[-1]

        return board

    yield place
    for board in opened:
        board.close()


def _board(kind: str, name: str, first: MemoryBoard, postgres: PostgresServer, s3: S3Server) -> Board:
    chance = random.Random(1)
    if kind == "memory":
        return first.another()
    if kind == "postgres":
        return PostgresBoard(postgres.url, namespace=name, patience_ms=10_000, chance=chance)
    return S3Board(S3Bucket(f"{BUCKET}/{name}", endpoint=s3.endpoint, is_anonymous=True), chance=chance)


@pytest.fixture
def place(places: Callable[[], Place]) -> Place:
    return places()


def made(board: Board, name: str, value: bytes) -> Entry:
    entry = board.put(name, value, version=None)
    assert entry is not None
    return entry


def test_what_one_puts_all_read(place: Place) -> None:
    """A new entry is on the board for everybody, as it was put; a board begins with nothing on it."""
    one, other = place(), place()
    assert one.read() == other.read() == {}
    entry = made(one, "node/a", b'{"beat": 1}')
    assert one.read() == other.read() == {"node/a": entry}
    assert entry.value == b'{"beat": 1}'


def test_an_entry_is_changed_only_by_who_knows_it(place: Place) -> None:
    """A change under the present version is made, under an earlier one or none it is not, and nothing is lost."""
    one, other = place(), place()
    first = made(one, "group/x", b"1")
    second = other.put("group/x", b"2", version=first.version)
    assert second is not None
    assert second.version != first.version
    assert one.put("group/x", b"3", version=first.version) is None
    assert one.put("group/x", b"3", version=None) is None
    assert not one.remove("group/x", version=first.version)
    assert one.read() == {"group/x": second}


def test_what_is_not_there_is_neither_changed_nor_removed(place: Place) -> None:
    """A version of an entry that is gone is good for nothing; made anew it is another, even with the same value."""
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
    """Who has read a value before it was changed and changed back can't change it: it is not the one it read."""
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
def test_names_are_kept_as_they_are(place: Place, name: str) -> None:
    """Whatever is printable names an entry, and comes back the same."""
    board = place()
    entry = made(board, name, b"")
    assert place().read() == {name: entry}
    assert board.remove(name, version=entry.version)
    assert place().read() == {}


@pytest.mark.parametrize("name", ["", "a\nb", "c" * 701])
def test_names_that_can_be_none_are_refused(place: Place, name: str) -> None:
    """What is empty, too long or not printable names nothing."""
    with pytest.raises(InvalidArgument, match="printable name"):
        place().put(name, b"1", version=None)


def test_values_may_be_large(place: Place) -> None:
    """The longest value of the config fits, whatever bytes it has."""
    value = bytes(range(256)) * 1024
    board = place()
    made(board, "config/k", value)
    assert place().read()["config/k"].value == value


def test_of_many_who_change_at_once_one_wins_each_time(place: Place) -> None:
    """Of four nodes that count one entry up, no count is lost and none is made twice."""
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


def test_of_many_who_make_an_entry_one_does(place: Place) -> None:
    """An entry that several nodes make at once is made by one of them, also where it was removed before."""
    boards = [place() for _ in range(4)]
    for round_ in range(3):
        with ThreadPoolExecutor(len(boards)) as pool:
            values = [f"{round_} {at}".encode() for at in range(len(boards))]
            put = list(pool.map(lambda board, value: board.put("x", value, version=None), boards, values))
        winners = [entry for entry in put if entry is not None]
        assert len(winners) == 1
        assert boards[0].read() == {"x": winners[0]}
        assert boards[1].remove("x", version=winners[0].version)


def test_who_waits_is_woken_by_another_node(place: Place) -> None:
    """A change of another node ends the wait long before its time is over, and is then there to be read."""
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
    assert seen.wait(30)
    thread.join()


def test_who_waits_is_woken_by_its_own_node(place: Place) -> None:
    """A change that another thread makes through the same board ends the wait too."""
    board = place()
    board.read()
    for number in range(3):
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(made, board, f"x{number}", b"1").result(timeout=30)
        board.wait(600)
        assert f"x{number}" in board.read()


def test_a_wait_ends_when_its_time_is_over_or_the_board_is_closed(place: Place) -> None:
    """Nobody waits for ever: not where nothing changes, nor on a board that is closed meanwhile."""
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
    thread.join(30)
    assert not thread.is_alive()


def test_a_closed_board_says_so(place: Place) -> None:
    """After its end a board answers nothing, and the others go on."""
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


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.sampled_from(("put", "remove", "stale")))))
def test_it_agrees_with_a_dict(places: Callable[[], Place], steps: list[tuple[bool, str, str]]) -> None:
    """Whatever two nodes do in whatever order, the board is what a dict would be."""
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
