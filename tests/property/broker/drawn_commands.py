"""Commands of every kind, valid or not, about the content of a ledger."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import strategies as st

from fairlane.core import commands
from fairlane.core.commands import Command, Given
from fairlane.core.ledger import Ledger
from fairlane.model.ids import number_text
from fairlane.model.message import NewMessage, Receipt
from fairlane.verbs import batches, journal, leases, queues
from fairlane.verbs import messages as messages_
from fairlane.verbs.config import SetConfig
from fairlane.verbs.verb import Request

Drawn: TypeAlias = tuple[Command[Any] | Request[Any], Given]


def commands_about(ledger: Ledger, queue: str) -> st.SearchStrategy[Drawn]:
    """Return requests about one queue of a ledger and its messages, with the inputs of their decisions."""
    messages = list(ledger.queues[queue].messages.values())
    numbers = [message.number for message in messages] or [1]
    waiting = [message.number for message in messages if not message.token]
    receipts = [Receipt(message.id, message.token) for message in messages]
    receipts += [Receipt(number_text(number), 1) for number in numbers]
    some = st.lists(st.sampled_from(receipts), max_size=4)
    of_waiting = st.lists(st.sampled_from(waiting or [0]), max_size=4, unique=True) if waiting else st.just([])
    given = st.just(Given(dice=[500] * 4))
    news = st.lists(
        st.sampled_from((NewMessage(dedup_id="d1"), NewMessage(cost=0), NewMessage(payload=b"x"))), max_size=3
    )
    name = st.just(queue)
    consumer = st.sampled_from((*ledger.queues[queue].consumers, "nobody"))
    epochs = [known.epoch for known in ledger.queues[queue].consumers.values()]
    sinks = ledger.queues[queue].sinks
    parts = sorted({name for sink in sinks.values() for _, name in sink.parts}) or ["p0"]
    sink = st.sampled_from((*sinks, "new"))
    plain = st.one_of(
        st.builds(
            batches.Stage,
            queue=name,
            sink=sink,
            batch=st.integers(0, 3),
            part=st.sampled_from(parts),
            at=st.integers(0, 3),
            messages=news,
        ),
        st.builds(
            batches.Publish,
            queue=name,
            sink=sink,
            batch=st.integers(0, 3),
            parts=st.lists(st.sampled_from(parts), max_size=2),
        ),
        st.builds(commands.Unstage, queue=name, sink=sink),
        st.builds(batches.DropSink, queue=name, sink=sink),
        st.builds(queues.CreateQueue, queue=st.sampled_from((queue, "new")), policy=st.just({})),
        st.builds(queues.UpdateQueue, queue=name, policy=st.just({})),
        st.builds(queues.DeleteQueue, queue=name),
        st.builds(queues.PauseQueue, queue=name, key=st.sampled_from((None, "x"))),
        st.builds(queues.ResumeQueue, queue=name, key=st.sampled_from((None, "x"))),
        st.builds(queues.PurgeQueue, queue=name, with_leased=st.booleans()),
        st.builds(SetConfig, values=st.sampled_from(({"a": "x"}, {"weight:a:x": None}, {"weight:a:x": "bad"}))),
        st.builds(messages_.Enqueue, queue=name, messages=news),
        st.builds(commands.LeasePicked, queue=name, numbers=of_waiting, visibility_ms=st.just(5)),
        st.builds(commands.Remove, queue=name, numbers=of_waiting, reason=st.just("deadline")),
        st.builds(messages_.Cancel, queue=name, ids=st.lists(st.sampled_from(numbers).map(number_text), max_size=3)),
        st.builds(leases.Ack, queue=name, receipts=some),
        st.builds(
            leases.Forward,
            queue=name,
            receipt=st.sampled_from(receipts),
            messages=st.dictionaries(name, news),
        ),
        st.builds(leases.Nack, queue=name, receipts=some, intent=st.sampled_from(("failure", "defer", "dead"))),
        st.builds(leases.Extend, queue=name, receipts=some),
        st.builds(
            leases.SetState,
            queue=name,
            receipt=st.sampled_from(receipts),
            state=st.sampled_from((None, b"x")),
            etag=st.none(),
        ),
        of_waiting.map(
            lambda found: commands.MoveDeadLetters(
                queue=queue, target=queue.removesuffix(".dlq"), numbers=found, messages=[NewMessage()] * len(found)
            )
        ),
        st.builds(batches.RegisterConsumer, queue=name, consumer=consumer, idle_ms=st.sampled_from((None, 0, 5))),
        st.builds(commands.Unclaim, queue=name, consumer=consumer),
        st.builds(batches.ReleaseConsumer, queue=name, consumer=consumer),
        st.builds(journal.SetReader, name=st.just("reader"), position=st.sampled_from((0, 10**9))),
        st.builds(journal.RemoveReader, name=st.just("reader")),
        st.sampled_from((commands.Open(), commands.Seal(size=1), commands.MoveBase(), commands.Carry(count=3))),
    )
    claim = st.builds(
        batches.MakeClaim,
        queue=name,
        consumer=consumer,
        epoch=st.sampled_from([*epochs, 0]),
        done=st.integers(0, 4),
        count=st.just(3),
    )
    picked = st.one_of(st.none(), of_waiting).map(lambda numbers: Given(picked=numbers))
    return st.one_of(st.tuples(plain, given), st.tuples(claim, picked))
