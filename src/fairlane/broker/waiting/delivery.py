"""Give leased messages to their takers, once the leases are durable."""

from __future__ import annotations

from fairlane.broker.cycle import Executor
from fairlane.broker.requests import AttachedConsumer, Call, HandOut, Waiter
from fairlane.broker.views.deliveries import deliveries_of
from fairlane.broker.waiting.consumers import RELEASED
from fairlane.errors import FairlaneError
from fairlane.model.message import Delivery
from fairlane.verbs.leases import LeasedMessages, Nack


def deliver(executor: Executor, hand_out: HandOut) -> None:
    """Give leased messages to their taker, now that the leases are durable; if it is gone, they go back."""
    taker = hand_out.taker
    if taker.room is not None:
        taker.room.settle()
    is_gone = taker.is_closed if isinstance(taker, AttachedConsumer) else taker.reply.done()
    if is_gone:
        request = Nack(queue=taker.queue, receipts=hand_out.receipts(), intent="defer", delay_ms=0)
        executor.submit(Call(request))
        return
    try:
        deliveries = deliveries_of(executor.bodies, hand_out)
    except FairlaneError as error:
        deliveries = _readable(executor, hand_out)
        if not deliveries:
            if isinstance(taker, Waiter):
                taker.reply.set_exception(error)
            return
    if isinstance(taker, AttachedConsumer):
        taker.deliver(deliveries)
    else:
        taker.reply.set_result(LeasedMessages(deliveries=deliveries))


def _readable(executor: Executor, hand_out: HandOut) -> list[Delivery]:
    """Return the deliveries whose bodies can be read. The others go back as failed attempts, or they would circle."""
    deliveries: list[Delivery] = []
    for token, message in enumerate(hand_out.messages, hand_out.token):
        single = HandOut(hand_out.taker, [message], token)
        try:
            deliveries.extend(deliveries_of(executor.bodies, single))
        except FairlaneError as error:
            queue = hand_out.taker.queue
            request = Nack(queue=queue, receipts=single.receipts(), error=str(error))
            executor.submit(Call(request, given=RELEASED))
    return deliveries
