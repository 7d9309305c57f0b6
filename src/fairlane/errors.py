"""Every error that Fairlane raises: one tree, and for each leaf a stable code, a cause and a remedy.

Catch ``FairlaneError`` for all of them, ``RequestError`` for errors that the caller can correct, and
``UnavailableError`` for errors that may go away when the caller tries again later.

The cause says what happened, with the values, and is written where the error is raised. The remedy says what to do
about it and belongs to the class. The code is the name of the class in lower case with underscores, without the
suffix ``Error``. ``fairlane.wire.errors`` maps each code to its HTTP and gRPC status, and
``docs/reference/errors.md`` is generated from the docstrings below.
"""

from __future__ import annotations

import re
from typing import ClassVar


class FairlaneError(Exception):
    """The root of the tree; never raised itself.

    Attributes:
        code: a stable name for programs.
        cause: what happened, with the values.
        remedy: what to do about it.
    """

    code: ClassVar[str]
    remedy: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if "remedy" in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).lower()

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.cause} {self.remedy}"


class RequestError(FairlaneError):
    """The request cannot succeed as it is, and the caller can correct it; never raised itself."""


class UnavailableError(FairlaneError):
    """The request cannot succeed now, but the same request may succeed later; never raised itself.

    Attributes:
        retry_after_ms: how long to wait before the next try, where that is known.
    """

    def __init__(self, cause: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(cause)
        self.retry_after_ms = retry_after_ms


class InvalidArgument(RequestError, ValueError):
    """A value in the request is not valid. Nothing was changed."""

    remedy = "Correct the value and call again."


class Closed(RequestError):
    """The scheduler, broker, client or server is closed or shutting down. Nothing was changed."""

    remedy = "Open a new one, or stop."


class WrongEventLoop(RequestError, RuntimeError):
    """An object that belongs to one event loop was called from another loop or thread. Nothing was changed."""

    remedy = "Call it on its own event loop; from another thread, use loop.call_soon_threadsafe()."


class WrongProcess(RequestError, RuntimeError):
    """A broker was called in a process forked from the one that opened it. Nothing was changed."""

    remedy = "Open the broker after forking, in one process only; run a server to share it between processes."


class JavaNotFound(RequestError):
    """Spark needs Java 17 or newer, and none was found on this machine."""

    remedy = "Install fairlane[spark], which includes Java, or set JAVA_HOME to a Java 17 or newer."


class ExecutorMismatch(RequestError):
    """A Spark executor runs other versions of Python, PySpark or Fairlane than the driver. No data was touched."""

    remedy = "Install the driver's versions on every Spark worker and point PYSPARK_PYTHON at that Python."


class QueueNotFound(RequestError):
    """The queue does not exist, or was deleted while the caller waited."""

    remedy = "Check the name, or create the queue first."


class QueueExists(RequestError):
    """A queue with this name already exists. It was not changed."""

    remedy = "Use ensure_queue to create it only if missing, or update_queue to change it."


class MessageNotFound(RequestError):
    """The queue has no message with this id: it was acknowledged, deleted or expired, or never existed."""

    remedy = "Ignore this if the message was already acknowledged; otherwise check the queue and the id."


class LeaseMismatch(RequestError):
    """The caller's lease on the message has ended, or another consumer holds it now. Nothing was changed."""

    remedy = (
        "Drop this message; it is redelivered or already was. "
        "To keep leases longer, extend them in time or raise the visibility timeout."
    )


class ConsumerNotFound(RequestError):
    """No consumer with this name is registered on the queue."""

    remedy = "Register the consumer first. If it was released, its claimed messages are back in the queue."


class ConsumerFenced(RequestError):
    """Another process registered a consumer under this name and replaced this one. Nothing was changed."""

    remedy = "Stop this consumer; register again only to replace the other one."


class ClaimNotFound(RequestError):
    """The consumer has no open claim with this number: it was completed, returned, or never made."""

    remedy = "Call claim to get the consumer's open claim; a completed claim cannot be read again."


class SinkNotFound(RequestError):
    """The queue has no sink with this name."""

    remedy = "Ignore this if the sink was already dropped; otherwise check the queue and the name."


class StageMismatch(RequestError):
    """The staged messages are not the ones that the request continues or publishes. Nothing was staged or published."""

    remedy = "Stage the whole part again under a new name, then publish that."


class RepeatTooLate(RequestError):
    """The message may be a repeat of one that the broker has forgotten already. It was not enqueued now."""

    remedy = "Look whether the message is in the queue or done; if it is not, enqueue it again as a new message."


class NotPending(RequestError):
    """The message is leased, so it cannot be cancelled. Nothing was changed."""

    remedy = "Try again once its lease has ended."


class StateMismatch(RequestError):
    """The workflow state has another version than the caller expected. Nothing was changed."""

    remedy = "Read the state again, apply your change to it, and write it with the new etag."


class NotADlq(RequestError):
    """The queue is not a dead-letter queue, or the queue it belongs to was deleted."""

    remedy = "Name a dead-letter queue, such as orders.dlq."


class HookInvalid(RequestError):
    """The script cannot be used as a hook. The previous hook stays in place."""

    remedy = "Correct the script and test it with `fairlane hook test` before you install it."


class PayloadTooLarge(RequestError):
    """A payload is larger than the broker's payload_bytes_max. The message was not enqueued."""

    remedy = "Store large data elsewhere and send a reference, or raise payload_bytes_max."


class RequestTooLarge(RequestError):
    """A request has more bytes or items than the server reads."""

    remedy = (
        "Send less in one request. Send large JSON as application/msgpack, or one payload as application/octet-stream; "
        "otherwise raise the setting that the cause names."
    )


class ReaderNotFound(RequestError):
    """No journal reader is registered under this name."""

    remedy = "Register the reader first."


class JournalTrimmed(RequestError):
    """The requested part of the journal has been deleted."""

    remedy = (
        "Read from the position in this error, or leave out what is gone with on_trimmed=skip (--on-trimmed skip). "
        "To keep more in future, raise the journal's retention or register a reader."
    )


class JournalMismatch(RequestError):
    """The journal is not the one that the tables, the checkpoint or the request were made for. Nothing was changed."""

    remedy = (
        "Read the journal with the id in this error. If another journal took its place for good, "
        "declare a new epoch once: `pipeline run --new-epoch`, or the option new_epoch of the Spark source."
    )


class JournalIncomplete(RequestError):
    """An exported journal has a gap, starts too late, or contains no messages to replay."""

    remedy = "Export the missing segments into the folder, or choose another folder."


class CandidateInvalid(RequestError):
    """A what-if policy, sweep or target is malformed, or cannot be applied to the journal."""

    remedy = "Correct it; docs/guides/what-if.md lists the settings you can try."


class ModelInaccurate(RequestError):
    """What-if's model of the consumers differs too much from the journal for a proposal. Nothing was proposed."""

    remedy = (
        "Select a period in which consumers worked as usual with --from and --to, "
        "and give each consumer an owner name. `fairlane whatif` shows forecasts with their error all the same."
    )


class RedriveNotFound(RequestError):
    """No redrive with this id is running or has run since the broker was opened."""

    remedy = "Start a new redrive; messages that were already moved stay moved."


class QueueElsewhere(RequestError):
    """Another node of the cluster owns the queue. Nothing was changed.

    Attributes:
        at: the address of that node.
    """

    remedy = "Send the request to the node at the address in this error; Fairlane's clients do so by themselves."

    def __init__(self, cause: str, *, at: str = "") -> None:
        super().__init__(cause)
        self.at = at


class NodeNotFound(RequestError):
    """The cluster has no node with this name. Nothing was changed."""

    remedy = "Check the name; `fairlane cluster status` lists the nodes."


class QueueSplit(RequestError):
    """The queue is split into partitions, and this request must go to one of them. Nothing was changed.

    Attributes:
        partitions: how many partitions accept new messages.
        made: how many partitions exist.
        by_message: whether a message's partition follows from the fairness key that its producer gives.
    """

    remedy = "Call each partition by name, such as orders~0 and orders~1; Fairlane's clients do so by themselves."

    def __init__(self, cause: str, *, partitions: int = 1, made: int = 1, by_message: bool = True) -> None:
        super().__init__(cause)
        self.partitions = partitions
        self.made = made
        self.by_message = by_message


class QueuesApart(RequestError):
    """An atomic request names queues that belong to different groups of the cluster. Nothing was changed."""

    remedy = "Create both queues in one group, or enqueue first and acknowledge afterwards."


class Unauthenticated(RequestError):
    """The request has no API key, or one that is unknown, expired or revoked."""

    remedy = "Send a valid API key; an operator creates one with `fairlane key create`."


class Forbidden(RequestError):
    """The caller's API key does not grant the right that the request needs. Nothing was changed."""

    remedy = "Use an API key that grants this right; an operator creates one with `fairlane key create`."


class RouteNotFound(RequestError):
    """The server has no such path, method or verb."""

    remedy = "Check the path and the method against the server's API description at /docs."


class InternalError(FairlaneError):
    """The server or client failed unexpectedly. This is a bug in Fairlane."""

    remedy = "Report it, with the traceback from the log."


class Disconnected(UnavailableError):
    """The connection was lost. The server may or may not have carried out the request."""

    remedy = "Send the request again; give an enqueue a dedup id so that it counts once."


class NodeInsecure(UnavailableError):
    """The node that owns the queue does not use TLS, and this node sends no API key in clear text. Nothing was done."""

    remedy = "Set up TLS for every node of the cluster, so that each advertises an https address."


class QueueFull(UnavailableError):
    """The queue has reached its limit of messages or bytes. The message was not enqueued."""

    remedy = "Retry later, add consumers, or raise the queue's limit."


class TooManyWaiters(UnavailableError):
    """The limit of consumers that wait at the same time is reached. This one was refused."""

    remedy = "Retry later, wait with fewer consumers, or raise the limit that the error names."


class TooManyConnections(UnavailableError):
    """The limit of open connections is reached. The request was not read."""

    remedy = "Retry later, close connections that are not needed, or raise the limit that the error names."


class TooMuchUnread(UnavailableError):
    """The caller, or all callers of the server together, have too many bytes of answers to read."""

    remedy = "Read the answers that were sent, then retry; or raise unread_bytes_max or unread_total_bytes_max."


class RateLimited(UnavailableError):
    """The caller exceeded its request rate. Nothing was changed."""

    remedy = "Retry later, send several messages in one request, or raise requests_per_second."


class QueueMoving(UnavailableError):
    """The queue is moving from one node of the cluster to another. Nothing was changed."""

    remedy = "Retry shortly; messages and leases move with the queue."


class StoreFailed(UnavailableError):
    """The store failed to write or read. A write may or may not be durable."""

    remedy = (
        "Send the request again; give an enqueue a dedup id so that it counts once. "
        "Check the disk space and the health of the store."
    )


class StoreFull(UnavailableError):
    """The disk of the store is almost full. Nothing was changed; messages can still be leased and acknowledged."""

    remedy = "Consume messages or free disk space, then send the request again."


class StoreLocked(UnavailableError):
    """Another broker has the store open, in this process or in another one."""

    remedy = "Close the other broker, or use another folder or namespace. Threads of one process share one broker."


class StoreFenced(UnavailableError):
    """Another process has taken over the store. Nothing was written, and this broker refuses all further requests."""

    remedy = "Send requests to the process that owns the store now, and close this broker."


class StoreCorrupt(UnavailableError):
    """The store contains data that cannot be read, or that an incompatible version wrote."""

    remedy = (
        "Restore a backup, or open the store with the version that wrote it. "
        "`fairlane store check` says what is affected."
    )


class StoreDamaged(StoreCorrupt):
    """The store in a folder has lost data, or parts of it are unreadable. It was not opened, and not changed."""

    remedy = (
        "Run `fairlane store check FOLDER` to see what is affected. "
        "Then restore a backup, or run `fairlane store repair FOLDER` to go on without it."
    )


class KeyFull(UnavailableError):
    """A fairness key has reached its limit of waiting messages. The new one was not accepted."""

    remedy = "Slow this tenant's producers down and retry later, or raise the key's limit."


class GlobalFull(UnavailableError):
    """The limit of waiting messages over all queues and keys is reached. The new one was not accepted."""

    remedy = "Retry later, add consumers, or raise the limit."


class WaitTimedOut(UnavailableError):
    """The caller's timeout passed before a message came or before a limit allowed another one. Nothing was changed."""

    remedy = "Retry later, or wait longer."


class DeadlinePassed(UnavailableError):
    """The deadline passed before the task started, so it did not run."""

    remedy = "Allow more time, or add capacity."


class Dropped(UnavailableError):
    """The waiting task was dropped in favor of another one because a limit was reached, so it did not run."""

    remedy = "Retry later, or raise the limit."
