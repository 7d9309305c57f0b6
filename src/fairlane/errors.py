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


class FullError(UnavailableError):
    """A limit on waiting messages or bytes is reached; never raised itself.

    Attributes:
        key: the fairness key of the refused message, where it is known; a path is a tuple.
        cost: the cost of that message.
    """

    key: str | tuple[str, ...] | None = None
    cost: int = 1


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
    """A broker or a client was called in a process forked from the one that opened it. Nothing was changed."""

    remedy = "Open it after forking. Only one process can open a broker: to share it between processes, run a server."


class JavaNotFound(RequestError):
    """Spark needs Java 17 or newer, and none was found on this machine."""

    remedy = "Install fairlane[spark], which includes Java, or set JAVA_HOME to Java 17 or newer."


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
        "Drop this message: it has been redelivered, or soon will be. "
        "To hold leases longer, extend them in time or raise the visibility timeout."
    )


class OutOfOrder(RequestError):
    """The queue has strict order, and an earlier message of the same key is still leased. This one stays leased."""

    remedy = "Acknowledge the messages of a key in the order in which they were leased, or together in one call."


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
    """The message may repeat one that the broker no longer remembers. It was not enqueued."""

    remedy = "Check whether the message is in the queue or done; if it is neither, enqueue it as a new message."


class NotPending(RequestError):
    """The message is claimed, or it is leased and only_waiting was set. Nothing was changed."""

    remedy = "Leave out only_waiting to revoke the lease. If the message is claimed, release its consumer first."


class StateMismatch(RequestError):
    """The workflow state has another version than the caller expected. Nothing was changed."""

    remedy = "Read the state again, apply your change to it, and write it with the new etag."


class NotADlq(RequestError):
    """The queue is not a dead-letter queue, or the queue it belongs to was deleted."""

    remedy = "Name a dead-letter queue, such as orders.dlq."


class HookInvalid(RequestError):
    """The script cannot be used as a hook. The previous hook stays in place."""

    remedy = "Correct the script and test it with `fairlane hook test` before you install it."


class UploadNotFound(RequestError):
    """The queue has no open upload with this id: a message has taken it, it was dropped, or it never existed."""

    remedy = "Upload the payload again; an upload is dropped after upload_silence_ms without a new piece."


class PayloadStreamed(RequestError):
    """The payload of a message was uploaded in pieces, and is not in memory."""

    remedy = "Read it with message.read(), message.reader() or message.write_to(path)."


class UploadMismatch(RequestError):
    """A piece does not fit its upload, or a message names an upload that lacks a piece."""

    remedy = "Send the missing pieces, or drop the upload and upload the payload again."


class PayloadTooLarge(RequestError):
    """A payload exceeds payload_bytes_max in a request, upload_bytes_max in pieces, or a limit on waiting bytes."""

    remedy = (
        "Upload the payload in pieces, as clients do with a file and HTTP with a chunked body, "
        "or raise the setting that the cause names."
    )


class ResultTooLarge(RequestError):
    """A result is larger than the broker's result_bytes_max. The message was not acknowledged."""

    remedy = "Store large data elsewhere and return a reference, or raise result_bytes_max."


class MessageCancelled(RequestError):
    """The message was cancelled, so the lease on it has ended and it has no result."""

    remedy = "Stop working on the message. Enqueue it again if its work is still wanted."


class MessageDead(RequestError):
    """The message failed for good and is a dead letter, so it has no result."""

    remedy = "Read its errors, correct the cause, and redrive it from its dead-letter queue."


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
        "Read from the position in this error, or skip the missing events with on_trimmed=skip (--on-trimmed skip). "
        "To keep more in the future, raise the journal's retention or register a reader."
    )


class JournalMismatch(RequestError):
    """The journal is not the one that the tables, the checkpoint or the request were made for. Nothing was changed."""

    remedy = (
        "Read the journal with the id in this error. If another journal has permanently replaced it, "
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
        "and give each consumer an owner name. `fairlane whatif` still shows forecasts, with their error."
    )


class ScheduleNotFound(RequestError):
    """The queue has no schedule of this name."""

    remedy = "List the schedules of the queue, or create it with set_schedule()."


class RedriveNotFound(RequestError):
    """No redrive with this id is running or is among the last that have ended."""

    remedy = "Start a new redrive; messages that were already moved stay moved."


class QueueElsewhere(RequestError):
    """Another node of the cluster owns the queue. Nothing was changed.

    Attributes:
        at: the address of that node.
    """

    remedy = "Send the request to the node at the address in this error; Fairlane's clients do so automatically."

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

    remedy = "Call each partition by name, such as orders~0 and orders~1; Fairlane's clients do so automatically."

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


class QueueFull(FullError):
    """The queue has reached its limit of messages or bytes. The message was not enqueued."""

    remedy = "Retry later, add consumers, or raise the queue's limit."


class TooManyWaiters(UnavailableError):
    """Too many consumers, or too many pieces of uploads, are waiting already. This one was refused."""

    remedy = "Retry later, have fewer wait at the same time, or raise the limit that the error names."


class TooManyUploads(UnavailableError):
    """The caller has too many uploads or too many uploaded bytes open. Nothing was stored."""

    remedy = "Enqueue or drop open uploads, then retry; or raise the limit that the error names."


class TooManyConnections(UnavailableError):
    """The limit of open connections is reached. The request was not read."""

    remedy = "Retry later, close connections that are not needed, or raise the limit that the error names."


class TooMuchUnread(UnavailableError):
    """The caller, or all callers of the server together, have too many bytes of unread answers."""

    remedy = "Read the answers that were sent, then retry; or raise unread_bytes_max or unread_total_bytes_max."


class TooMuchArriving(UnavailableError):
    """The caller, or all callers of the server together, are sending too many large requests at once."""

    remedy = "Retry later, send smaller requests or fewer at a time; or raise arriving_total_bytes_max."


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
        "`fairlane store check` shows what is affected."
    )


class StoreDamaged(StoreCorrupt):
    """The store in a folder has lost data, or parts of it are unreadable. It was not opened, and not changed."""

    remedy = (
        "Run `fairlane store check FOLDER` to see what is affected. "
        "Then restore a backup, or run `fairlane store repair FOLDER` to continue without it."
    )


class KeyFull(FullError):
    """A fairness key has reached its limit of waiting messages. The new one was not accepted."""

    remedy = "Slow this tenant's producers down and retry later, or raise the key's limit."


class GlobalFull(FullError):
    """The limit of waiting messages over all queues and keys is reached. The new one was not accepted."""

    remedy = "Retry later, add consumers, or raise the limit."


class WaitTimedOut(UnavailableError):
    """The caller's timeout passed before a message arrived or a limit allowed another one. Nothing was changed."""

    remedy = "Retry later, or wait longer."


class CallTimedOut(UnavailableError):
    """The caller's timeout passed before the server answered. The server may or may not have carried out the request.

    The cause says why the client cannot reach the server, if that is known.
    """

    remedy = (
        "Check that a server is running at this address, then send the request again; "
        "give an enqueue a dedup id so that it counts once."
    )


class DeadlinePassed(UnavailableError):
    """The deadline passed before the task started, so it did not run."""

    remedy = "Allow more time, or add capacity."


class Dropped(UnavailableError):
    """The waiting task was dropped in favor of another one because a limit was reached, so it did not run."""

    remedy = "Retry later, or raise the limit."
