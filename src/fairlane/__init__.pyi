from fairlane import errors as errors
from fairlane.asgi import FairQueue as FairQueue
from fairlane.assembly import AsyncBroker as AsyncBroker
from fairlane.assembly import Broker as Broker
from fairlane.assembly import Receipt as Receipt
from fairlane.assembly import Settings as Settings
from fairlane.assembly import open_async_broker as open_async_broker
from fairlane.assembly import open_broker as open_broker
from fairlane.client import AsyncClient as AsyncClient
from fairlane.client import AsyncMessage as AsyncMessage
from fairlane.client import AsyncProducer as AsyncProducer
from fairlane.client import Client as Client
from fairlane.client import DeadLetterFilter as DeadLetterFilter
from fairlane.client import Delivery as Delivery
from fairlane.client import Message as Message
from fairlane.client import NewMessage as NewMessage
from fairlane.client import Producer as Producer
from fairlane.client import QueuePolicy as QueuePolicy
from fairlane.client import Retries as Retries
from fairlane.client import ScheduleSpec as ScheduleSpec
from fairlane.errors import FairlaneError as FairlaneError
from fairlane.scheduler import AsyncScheduler as AsyncScheduler
from fairlane.scheduler import KeyPolicy as KeyPolicy
from fairlane.scheduler import Scheduler as Scheduler
from fairlane.tasks import App as App
from fairlane.tasks import TypedTask as TypedTask
from fairlane.worker import HandlerPolicy as HandlerPolicy
from fairlane.worker import Worker as Worker
from fairlane.worker import WorkMessage as WorkMessage

__version__: str
__all__: list[str]
