"""Producer numbers: an enqueue that a client repeats because its answer was lost happens once."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.producer_numbers import WEIGHT_MAX
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.journal.records import AnyRecord, Carried, Enqueued
from fairlane.testing.stepped import Pending, SteppedBroker
from fairlane.verbs.messages import Enqueue, EnqueueResults
from fairlane.verbs.methods.conversions import ids_of
from tests.kit.ids import numbered
from tests.unit.broker.stepping import broker_with, codes, lease_one, message, payloads


def enqueue(
    broker: SteppedBroker, *numbers: int, queue: str = "q", producer: str = "p", by: str | None = None, **terms: Any
) -> list[str | FairlaneError]:
    """Enqueue a message for each number, whose payload is the number."""
    messages = [message(str(number).encode(), **terms) for number in numbers]
    request = Enqueue(queue=queue, messages=messages, wait_ms=0, producer=producer, numbers=numbers)
    return ids_of(broker.call(request, by=by).results)


def test_a_repeat_is_answered_with_the_first_ids() -> None:
    """After the ack, over a reopen, as a whole and in part, the answer stays the same; each message is stored once."""
    broker = broker_with()
    first = enqueue(broker, 0, 1, 2)
    later = enqueue(broker, 3)
    assert enqueue(broker, 0, 1, 2) == first
    broker.reopen()
    assert enqueue(broker, 1, 2, 3) == [*first[1:], *later]
    broker.ack(lease_one(broker))
    assert enqueue(broker, 0) == first[:1]
    assert payloads(broker.lease("q", 9)) == [b"1", b"2", b"3"]


def test_a_repeat_is_answered_with_the_first_correlation_id() -> None:
    """A repeat with another correlation id names the message that is there, also after a reopen."""
    broker = broker_with()

    def correlation_ids(correlation_id: str | None) -> list[str | None]:
        messages = [message(b"x", correlation_id=correlation_id)]
        results: EnqueueResults = broker.call(Enqueue(queue="q", messages=messages, producer="p", numbers=(0,)))
        return [result.correlation_id for result in results.results]

    assert correlation_ids("first") == ["first"]
    assert correlation_ids("again") == correlation_ids(None) == ["first"]
    broker.reopen()
    assert correlation_ids("again") == ["first"]


def test_only_the_first_number_is_needed_where_the_others_follow() -> None:
    """One number stands for a batch, and a repeat that names each of them is the same."""
    broker = broker_with()
    batch = Enqueue(queue="q", messages=[message(), message(), message()], producer="p", numbers=(7,))
    first = ids_of(broker.call(batch).results)
    assert enqueue(broker, 7, 8, 9) == first
    assert ids_of(broker.call(batch).results) == first


def test_requests_that_overtake_each_other_are_all_new() -> None:
    """Numbers come in any order and with gaps, and the gaps can be filled later."""
    broker = broker_with()
    late, gaps, early = enqueue(broker, 200), enqueue(broker, 10, 13, 150), enqueue(broker, 11, 12)
    assert len({*late, *gaps, *early}) == 6
    assert enqueue(broker, 10, 11, 12, 13) == [gaps[0], *early, gaps[1]]
    assert enqueue(broker, 150, 200) == [gaps[2], *late]


def test_refused_messages_of_a_repeat_are_decided_anew() -> None:
    """Of a batch that was taken in part, a repeat returns the ids and tries the others again."""
    broker = broker_with({"waiting_max": 2})
    first = enqueue(broker, 0, 1, 2)
    assert codes(first) == [None, None, "queue_full"]
    assert codes(enqueue(broker, 0, 1, 2)) == [None, None, "queue_full"]
    broker.ack(lease_one(broker))
    again = enqueue(broker, 0, 1, 2)
    assert again[:2] == first[:2]
    assert enqueue(broker, 0, 1, 2) == again


def test_a_repeat_finds_no_limit_and_no_line_in_its_way() -> None:
    """A repeat in a full queue, behind producers that wait, is answered at once."""
    broker = broker_with({"waiting_max": 1, "backpressure": "wait"})
    first = enqueue(broker, 0)
    waiting = broker.start(Enqueue(queue="q", messages=[message(b"other")], wait_ms=60_000))
    broker.step()
    repeat = Enqueue(queue="q", messages=[message(b"0")], wait_ms=60_000, producer="p", numbers=(0,))
    assert ids_of(broker.call(repeat).results) == first
    assert not waiting.done()


def test_a_repeat_of_an_enqueue_that_waits_is_taken_in_once() -> None:
    """A client whose connection broke sends again what still waits at the broker; there is one message in the end."""
    broker = broker_with({"waiting_max": 1, "backpressure": "wait"})
    enqueue(broker, 0)
    request = Enqueue(queue="q", messages=[message(b"1")], wait_ms=60_000, producer="p", numbers=(1,))
    tries: list[Pending[EnqueueResults]] = [broker.start(request), broker.start(request)]
    broker.step()
    broker.ack(lease_one(broker))
    ids = [ids_of(broker.wait(each).results) for each in tries]
    assert ids[0] == ids[1]
    assert payloads(broker.lease("q", 9)) == [b"1"]


def test_a_dropping_queue_drops_nothing_for_a_repeat() -> None:
    """Where new messages push out old ones, a repeat does not."""
    broker = broker_with({"waiting_max": 1, "backpressure": "drop_oldest"})
    first = enqueue(broker, 0)
    other = broker.enqueue("q", b"other")
    assert enqueue(broker, 0) == first
    assert [each.id for each in broker.lease("q", 9)] == [other]


def test_numbers_belong_to_a_queue_a_producer_and_a_caller() -> None:
    """The same number of another queue, client or API key is another message."""
    broker = broker_with()
    broker.create_queue("r")
    places: list[dict[str, Any]] = [{}, {"queue": "r"}, {"producer": "o"}, {"by": "a"}, {"by": "b"}]
    ids = [enqueue(broker, 0, **place)[0] for place in places]
    assert len(set(ids)) == len(places)
    assert [enqueue(broker, 0, **place)[0] for place in places] == ids


def test_a_deleted_queue_takes_its_numbers_with_it() -> None:
    """A queue that is created again knows nothing of the numbers of the one before; others are not concerned."""
    broker = broker_with()
    broker.create_queue("r")
    first, other = enqueue(broker, 0), enqueue(broker, 0, queue="r")
    broker.delete_queue("q")
    broker.create_queue("q")
    assert enqueue(broker, 0) != first
    assert enqueue(broker, 0, queue="r") == other


def test_a_dedup_id_counts_besides_the_number() -> None:
    """A message with a new number and a known dedup id is a repeat, and its own repeat is one too."""
    broker = broker_with()
    (first,) = enqueue(broker, 0, dedup_id="a")
    assert enqueue(broker, 1, dedup_id="a") == [first]
    assert enqueue(broker, 1, dedup_id="a") == [first]
    assert enqueue(broker, 0) == [first]


def test_after_the_window_a_number_is_new() -> None:
    """One millisecond before the end of the window a number is known, at its end it is new, as a dedup id is."""
    broker = broker_with({"dedup_window_ms": 1_000})
    first = enqueue(broker, 0)
    broker.advance(999)
    assert enqueue(broker, 0) == first
    broker.advance(1)
    assert enqueue(broker, 0) != first


def test_a_queue_without_a_window_remembers_nothing() -> None:
    """With a window of zero every enqueue is new, and nothing is kept."""
    broker = broker_with({"dedup_window_ms": 0})
    assert enqueue(broker, 0) != enqueue(broker, 0)
    assert not broker.engine.ledger.producer_numbers


def test_acknowledged_messages_leave_one_run_for_each_request() -> None:
    """What is kept depends on the requests and not on the messages, and goes with the window."""
    broker = broker_with({"dedup_window_ms": 1_000})
    for request in range(20):
        enqueue(broker, *range(100 * request, 100 * request + 100))
        broker.ack_many("q", broker.lease("q", 100))
    numbers = broker.engine.ledger.producer_numbers[""]
    assert (numbers.runs, sum(run.count for _, run in numbers.all_runs())) == (20, 2_000)
    assert not broker.engine.ledger.queues["q"].dedups
    broker.advance(1_000)
    enqueue(broker, 0, producer="another")
    assert numbers.runs == 1
    assert numbers.find("q", "p") is None


def flood(broker: SteppedBroker, *, by: str | None = None, producer: str = "flood") -> None:
    """Use up all the room of a caller, with one number in each block of 256."""
    for first in range(0, 256 * WEIGHT_MAX // 8, 9_984):
        enqueue(broker, *range(first, first + 9_984, 256), producer=producer, by=by)


def test_a_number_that_may_have_been_forgotten_is_refused() -> None:
    """A caller's memory is bounded: what fell out of it is not enqueued a second time, and what came since is known."""
    broker = broker_with()
    enqueue(broker, 0)
    flood(broker, producer="p")
    latest = enqueue(broker, 19_000_000)
    assert broker.engine.ledger.producer_numbers[""].weight <= WEIGHT_MAX
    assert codes(enqueue(broker, 0)) == ["repeat_too_late"]
    assert enqueue(broker, 19_000_000, 19_000_001)[:1] == latest
    broker.reopen()
    assert codes(enqueue(broker, 0)) == ["repeat_too_late"]
    assert enqueue(broker, 19_000_000) == latest


def test_the_last_enqueue_of_a_producer_is_forgotten_without_becoming_new() -> None:
    """If other producers of the caller use up the room, a repeat is refused until its window is over."""
    broker = broker_with()
    enqueue(broker, 0, 1)
    flood(broker)
    assert codes(enqueue(broker, 0)) == ["repeat_too_late"]
    broker.reopen()
    assert codes(enqueue(broker, 0, 1, 2)) == ["repeat_too_late", "repeat_too_late", None]
    broker.advance(300_000)
    assert codes(enqueue(broker, 0)) == [None]


def test_a_flood_of_numbers_leaves_other_callers_alone() -> None:
    """An API key that invents producers and numbers shortens its own memory only."""
    broker = broker_with()
    mine = enqueue(broker, 0, by="mine")
    for at in range(40):
        enqueue(broker, 0, producer=f"invented-{at}", by="theirs")
    flood(broker, by="theirs")
    assert enqueue(broker, 0, by="mine") == mine
    assert broker.engine.ledger.producer_numbers["theirs"].weight <= WEIGHT_MAX


def test_an_enqueue_that_waited_is_never_too_late() -> None:
    """While an enqueue waits for the capacity of its key, others pass it by the thousands; then it is taken in."""
    broker = broker_with({"key_waiting_max": 78, "backpressure": "wait"})
    broker.enqueue_many("q", [message(b"", fairness_key="a")] * 78)
    enqueue(broker, 0, fairness_key="b")
    late = [message(b"2", fairness_key="a")]
    waiting = broker.start(Enqueue(queue="q", messages=late, wait_ms=60_000, producer="p", numbers=(2,)))
    broker.step()
    for first in range(3, 256 * WEIGHT_MAX // 8, 9_984):
        enqueue(broker, *range(first, first + 9_984, 256), fairness_key=f"other-{first}")
    assert codes(enqueue(broker, 2, fairness_key="b")) == ["repeat_too_late"]
    assert not waiting.done()
    broker.ack(lease_one(broker))
    assert codes(ids_of(broker.wait(waiting).results)) == [None]


def test_numbers_survive_a_moved_base() -> None:
    """Numbers are known after the base has passed the records they were written in, also those that came since."""
    broker = broker_with(carry_floor=20)
    first = enqueue(broker, 0, 5, 6)
    broker.ack_many("q", broker.lease("q", 9))
    for _ in range(100):
        broker.enqueue("q", b"")
        broker.ack(lease_one(broker))
    since = enqueue(broker, 1, 2)
    assert not isinstance(first[2], FairlaneError)
    assert broker.engine.ledger.base > numbered(first[2])
    broker.reopen()
    assert enqueue(broker, 0, 1, 2, 5, 6) == [first[0], *since, *first[1:]]


def test_old_numbers_do_not_keep_the_base_moving() -> None:
    """Runs count as alive: while they pile up, they are written down again now and then, and not all the time."""
    broker = broker_with(carry_floor=20)
    seen: list[AnyRecord] = []
    broker.engine.taps.append(lambda records, _now_ms: seen.extend(records))
    for at in range(300):
        enqueue(broker, at)
        broker.ack(lease_one(broker))
    images = [image for record in seen if isinstance(record, Carried) for image in record.callers]
    carried = sum(len(run.joined or ()) // 4 for image in images for run in image.runs)
    assert 0 < carried < 3 * 300


def test_the_journal_has_the_numbers_of_what_was_taken_in() -> None:
    """A record names the caller, the producer and the numbers, of a refused message none."""
    broker = broker_with({"waiting_max": 2})
    seen: list[AnyRecord] = []
    broker.engine.taps.append(lambda records, _now_ms: seen.extend(records))
    request = Enqueue(queue="q", messages=[message(), message(weight=0), message()], producer="p", numbers=(4,))
    broker.call(request, by="key")
    (record,) = [record for record in seen if isinstance(record, Enqueued)]
    assert record.numbered is not None
    assert (record.numbered.caller, record.numbered.producer) == ("key", "p")
    assert record.numbered.numbers == [4, 6]


@pytest.mark.parametrize(
    ("producer", "numbers"),
    [
        ("", (0,)),
        (None, (0,)),
        ("p" * 129, (0,)),
        ("p", ()),
        ("p", (0, 1)),
        ("p", (0, 1, 1)),
        ("p", (2, 1, 0)),
        ("p", (0, 1, 10_000)),
        ("p", (-1,)),
        ("p", (2**53,)),
        ("p", (True,)),
    ],
)
def test_numbers_that_no_producer_gives_are_refused(producer: str | None, numbers: tuple[int, ...]) -> None:
    """A request needs a producer and ascending numbers close to each other, one for each message or only the first."""
    broker = broker_with()
    request = Enqueue(queue="q", messages=[message()] * 3, producer=producer, numbers=numbers)
    with pytest.raises(InvalidArgument):
        broker.call(request)
