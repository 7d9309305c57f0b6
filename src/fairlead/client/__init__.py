"""The client: ``AsyncClient`` for asyncio and ``Client`` for threads, to a server or to a broker in this process.

What a program names when it uses a client can be imported from here.
"""

from fairlead.client.aio import AsyncClient
from fairlead.client.message import Message
from fairlead.client.message_aio import AsyncMessage
from fairlead.client.producer import Producer
from fairlead.client.producer_aio import AsyncProducer
from fairlead.client.retrying import Retries
from fairlead.client.stream import Stream
from fairlead.client.stream_aio import AsyncStream
from fairlead.client.threads import Client
from fairlead.client.transport import Transport
from fairlead.model.message import Delivery, NewMessage
from fairlead.model.policy import QueuePolicy
from fairlead.model.views import DeadLetterFilter

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
    "Stream",
    "Transport",
]
