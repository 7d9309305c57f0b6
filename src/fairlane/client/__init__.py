"""The client: ``AsyncClient`` for asyncio and ``Client`` for threads, of a server or of a broker in this process.

Programs import the names that they need from here.
"""

from fairlane.client.aio import AsyncClient
from fairlane.client.message import Message
from fairlane.client.message_aio import AsyncMessage
from fairlane.client.producer import Producer
from fairlane.client.producer_aio import AsyncProducer
from fairlane.client.retries import Retries
from fairlane.client.stream import Stream
from fairlane.client.stream_aio import AsyncStream
from fairlane.client.threads import Client
from fairlane.client.transport import Transport
from fairlane.model.message import Delivery, NewMessage
from fairlane.model.policy import QueuePolicy
from fairlane.model.schedules import ScheduleSpec
from fairlane.model.views import DeadLetterFilter

__all__ = [
    "AsyncClient",
    "AsyncMessage",
    "AsyncProducer",
    "AsyncStream",
    "Client",
    "DeadLetterFilter",
    "Delivery",
    "Message",
    "NewMessage",
    "Producer",
    "QueuePolicy",
    "Retries",
    "ScheduleSpec",
    "Stream",
    "Transport",
]
