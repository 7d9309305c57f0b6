"""Every error Fairlane raises: one tree, and for each leaf a stable code, a cause and a remedy.

Catch ``FairlaneError`` for all of them, ``RequestError`` for what the caller can mend, ``UnavailableError`` for what
time mends.
"""

from __future__ import annotations

from typing import ClassVar


class FairlaneError(Exception):
    """The root of the tree; never raised itself.

    Attributes:
        code: a stable name for programs.
        remedy: what to do about it, for people.
    """

    code: ClassVar[str]
    remedy: ClassVar[str]

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.cause} {self.remedy}"


class RequestError(FairlaneError):
    """The caller asked for something that can't be, and can ask differently; never raised itself."""


class UnavailableError(FairlaneError):
    """It can't be done now but may be later; never raised itself.

    Attributes:
        retry_after_ms: when coming back is likely to help, where that is known.
    """

    def __init__(self, cause: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(cause)
        self.retry_after_ms = retry_after_ms


class InvalidArgument(RequestError, ValueError):
    """A value is not one the call can take; nothing was done."""

    code = "invalid_argument"
    remedy = "Correct the value and call again."


class Closed(RequestError):
    """The scheduler or broker has been closed."""

    code = "closed"
    remedy = "Stop, or open a new one."


class WrongEventLoop(RequestError, RuntimeError):
    """Something that belongs to one event loop was called from another loop or thread; nothing was done."""

    code = "wrong_event_loop"
    remedy = "Call it in its own loop: from async functions there, or with loop.call_soon_threadsafe from elsewhere."


class WrongProcess(RequestError, RuntimeError):
    """A broker was called in a process that was forked from the one that opened it; nothing was done."""

    code = "wrong_process"
    remedy = "Fork first and open the broker afterwards, in one process; let that one serve the others."


class JavaNotFound(RequestError):
    """There is no Java on this machine that Spark could run on."""

    code = "java_not_found"
    remedy = "Install fairlane[spark], which brings one, or set JAVA_HOME to a Java that is new enough."


class ExecutorMismatch(RequestError):
    """A Spark executor does not run what the driver runs; nothing was read or written."""

    code = "executor_mismatch"
    remedy = "Install the same fairlane[spark] for the same Python on every worker; PYSPARK_PYTHON says which is run."


class QueueNotFound(RequestError):
    """There is no queue of this name."""

    code = "queue_not_found"
    remedy = "Create the queue, or correct its name."


class QueueExists(RequestError):
    """There is a queue of this name already; it was not changed."""

    code = "queue_exists"
    remedy = "Use another name, or update the queue."


class MessageNotFound(RequestError):
    """No message of this id is in the queue: it is done, gone, or never was."""

    code = "message_not_found"
    remedy = "Nothing is left to do if it was acked before; otherwise correct queue and id."


class LeaseMismatch(RequestError):
    """The lease is no longer, or never was, the one the message is under; nothing was changed."""

    code = "lease_mismatch"
    remedy = "Drop this message: another has it or will get it. Extend leases in time, or ask for longer ones."


class ConsumerNotFound(RequestError):
    """No consumer of this name is registered on the queue."""

    code = "consumer_not_found"
    remedy = "Register the consumer first; if it was released, what it had claimed is back in the queue."


class ConsumerFenced(RequestError):
    """The consumer was registered anew since, by whoever has its place now; nothing was done."""

    code = "consumer_fenced"
    remedy = "Stop: another runs under this name. Register again only to take its place."


class ClaimNotFound(RequestError):
    """The consumer has no open claim of this number: it is done, was given back, or was never made."""

    code = "claim_not_found"
    remedy = "Ask for the present claim with claim; what is done can't be read again."


class SinkNotFound(RequestError):
    """The queue has no sink of this name."""

    code = "sink_not_found"
    remedy = "Nothing is left to do if it was dropped before; otherwise correct queue and name."


class StageMismatch(RequestError):
    """What is staged is not what the request builds on; nothing was staged or published."""

    code = "stage_mismatch"
    remedy = "Stage the part again from its beginning, under another name, and publish that."


class NotPending(RequestError):
    """The message is leased, so it can't be taken out of the queue."""

    code = "not_pending"
    remedy = "Wait until it is acked or its lease ends."


class StateMismatch(RequestError):
    """The workflow state is not the version that was expected; nothing was changed."""

    code = "state_mismatch"
    remedy = "Read the state again and decide anew."


class NotADlq(RequestError):
    """The queue is not a dead-letter queue, or the queue it belongs to is gone."""

    code = "not_a_dlq"
    remedy = "Name the dead-letter queue, such as orders.dlq."


class HookInvalid(RequestError):
    """A script can't be used as a hook; the one before stays."""

    code = "hook_invalid"
    remedy = "Correct the script; try it on samples first."


class PayloadTooLarge(RequestError):
    """A payload has more bytes than the broker accepts."""

    code = "payload_too_large"
    remedy = "Store large data elsewhere and send a reference, or raise payload_bytes_max."


class ReaderNotFound(RequestError):
    """No reader of the journal is registered under this name."""

    code = "reader_not_found"
    remedy = "Register the reader first."


class JournalTrimmed(RequestError):
    """The part of the journal that was asked for is gone."""

    code = "journal_trimmed"
    remedy = "Read from the position named here, and raise the retention or register the reader to keep more."


class JournalIncomplete(RequestError):
    """An exported journal lacks something that is needed."""

    code = "journal_incomplete"
    remedy = "Export the segments that are missing into the folder, or name another folder."


class CandidateInvalid(RequestError):
    """A candidate policy, a sweep or a target can't be understood, or can't be tried on a journal."""

    code = "candidate_invalid"
    remedy = "Correct it; what can be tried is in the guide on what-if."


class RedriveNotFound(RequestError):
    """No redrive of this name is running or has run since the broker was opened."""

    code = "redrive_not_found"
    remedy = "Start it anew: what has been moved stays moved."


class QueueElsewhere(RequestError):
    """The queue belongs to another node of the cluster; nothing was done.

    Attributes:
        at: the address of that node.
    """

    code = "queue_elsewhere"
    remedy = "Ask the node at the address that the error names, or use the client of Fairlane, which does."

    def __init__(self, cause: str, *, at: str = "") -> None:
        super().__init__(cause)
        self.at = at


class NodeNotFound(RequestError):
    """No node of this name is known in the cluster; nothing was done."""

    code = "node_not_found"
    remedy = "Correct the name; the verb cluster tells the names of all nodes."


class QueueSplit(RequestError):
    """The queue is split into partitions, and this can't be asked of all of them at once; nothing was done.

    Attributes:
        partitions: how many partitions take new messages.
        made: how many there are.
        by_message: whether the fairness key that a producer gives is the one that counts.
    """

    code = "queue_split"
    remedy = "Ask for each partition by its name, such as orders~0 and orders~1, or use the client of Fairlane."

    def __init__(self, cause: str, *, partitions: int = 1, made: int = 1, by_message: bool = True) -> None:
        super().__init__(cause)
        self.partitions = partitions
        self.made = made
        self.by_message = by_message


class QueuesApart(RequestError):
    """Two queues that an atomic step is to touch are in different groups; nothing was done."""

    code = "queues_apart"
    remedy = "Create queues that forward to each other in one group, or enqueue first and ack then."


class Unauthenticated(RequestError):
    """The caller did not say who it is, or nobody by that key is known."""

    code = "unauthenticated"
    remedy = "Send a valid API key; ask the operator for one."


class Forbidden(RequestError):
    """The caller's key does not give the right to do this; nothing was done."""

    code = "forbidden"
    remedy = "Ask the operator for a key with this right."


class RouteNotFound(RequestError):
    """There is nothing at this address."""

    code = "route_not_found"
    remedy = "Look up the address in the API's description."


class InternalError(FairlaneError):
    """Something went wrong that should not have; it is a fault of ours."""

    code = "internal"
    remedy = "Look into the server's log, and report it."


class Disconnected(UnavailableError):
    """The connection was lost. What was being asked may have been done or not."""

    code = "disconnected"
    remedy = "Repeat the request, with a dedup id if it was an enqueue."


class QueueFull(UnavailableError):
    """A queue has as many messages, or bytes, as it may; the new one was not accepted."""

    code = "queue_full"
    remedy = "Come back later, add consumers, or raise the queue's limit."


class TooManyWaiters(UnavailableError):
    """As many consumers wait as may; this one was turned away."""

    code = "too_many_waiters"
    remedy = "Come back later, or raise waiters_max."


class RateLimited(UnavailableError):
    """The caller has made more requests than it may in this time; nothing was done."""

    code = "rate_limited"
    remedy = "Come back later, ask for many messages at once, or raise requests_per_second."


class QueueMoving(UnavailableError):
    """The queue is on its way from one node of the cluster to another; nothing was done."""

    code = "queue_moving"
    remedy = "Come back in a moment; messages and leases move with it."


class StoreFailed(UnavailableError):
    """The store could not write or read. What was being written may be durable or not."""

    code = "store_failed"
    remedy = "Repeat the request, with a dedup id if it was an enqueue; look after disk space and health of the store."


class StoreLocked(UnavailableError):
    """Another broker has the store open, in this process or in another."""

    code = "store_locked"
    remedy = "Close what has it open, or use another folder or namespace; threads share one broker."


class StoreFenced(UnavailableError):
    """Another process owns the store now; nothing was written, and this one answers no more."""

    code = "store_fenced"
    remedy = "Ask the process that owns the store now; close this one, or open it again once the store is free."


class StoreCorrupt(UnavailableError):
    """The store holds something that can't be read, or that another version wrote."""

    code = "store_corrupt"
    remedy = "Restore a backup, or open the store with the version that wrote it."


class KeyFull(UnavailableError):
    """One fairness key has as much waiting as it may; the new one was not accepted."""

    code = "key_full"
    remedy = "Let this tenant send less or later, or raise its limit."


class GlobalFull(UnavailableError):
    """As many tasks wait in all as may; the new one was not accepted."""

    code = "global_full"
    remedy = "Come back later, add consumers, or raise the limit."


class WaitTimedOut(UnavailableError):
    """Nothing came, or no room was made, within the time the caller would wait; nothing was done."""

    code = "wait_timed_out"
    remedy = "Come back later, or wait longer."


class DeadlinePassed(UnavailableError):
    """A task was not reached before its deadline, so it never ran."""

    code = "deadline_passed"
    remedy = "Allow more time, or add consumers."


class Dropped(UnavailableError):
    """A waiting task had to make room for another, so it never ran."""

    code = "dropped"
    remedy = "Enqueue it again later, or raise the limit."
