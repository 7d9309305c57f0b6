"""The handler of a queue of tasks: it finds the task of each message, decodes its arguments, and runs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

from fairlane.model.message import Delivery
from fairlane.model.policy import QueuePolicy
from fairlane.tasks.calls import continued
from fairlane.tasks.task import KEPT, RESULT_HEADER, TASK_HEADER, TypedTask
from fairlane.worker.batches import open_batch
from fairlane.worker.handlers import QueueHandler
from fairlane.worker.message import ThreadMessage, WorkMessage
from fairlane.worker.policy import Answer, AsyncHandle, HandlerPolicy
from fairlane.worker.results import KINDS, Acknowledge, Defer
from fairlane.worker.threads import HandlerThreads

AnyTask = TypedTask[Any, Any]
_RETURN_MS: Final = 2_000
"""How long a message of an unknown task waits before a worker, this one or another, gets it again."""
_REMIND_S: Final = 60.0
_log = logging.getLogger("fairlane.worker")


class TaskDispatch:
    """The tasks of one queue."""

    def __init__(self, tasks: Mapping[str, AnyTask], policy: HandlerPolicy, declared: Mapping[str, object]) -> None:
        self._tasks = tasks
        self._policy = policy
        self._queue_keeps_results = bool(declared.get("result_ttl_ms"))
        self._only = next(iter(tasks.values())) if len(tasks) == 1 else None
        self._told_s: dict[str, float] = {}

    def task_of(self, headers: Mapping[str, str]) -> AnyTask | None:
        """Return the task that a message names. A message without a name is for the only task of the queue."""
        name = headers.get(TASK_HEADER)
        return self._only if name is None else self._tasks.get(name)

    def kind_of(self, delivery: Delivery) -> type[WorkMessage]:
        """Return the class of a message: sync functions get one for threads."""
        task = self.task_of(delivery.headers)
        return WorkMessage if task is None or task.is_async else ThreadMessage

    def policy_of(self, message: WorkMessage) -> HandlerPolicy:
        """Return the timeout and the rules for failures of a message."""
        task = self.task_of(message.headers)
        return self._policy if task is None else task.definition.policy

    def learn(self, policy: QueuePolicy) -> None:
        """Note the policy that the queue actually has."""
        self._queue_keeps_results = policy.result_ttl_ms > 0

    def handle(self, threads: HandlerThreads) -> AsyncHandle:
        """Return the function that handles a message; see ``QueueHandler``."""
        batches = {
            name: open_batch(task.function, threads, size=terms.size, wait_ms=terms.wait_ms)
            for name, task in self._tasks.items()
            if (terms := task.definition.batch) is not None
        }

        async def dispatch(message: WorkMessage) -> Answer:
            task = self.task_of(message.headers)
            if task is None:
                return self._returned(message)
            args, kwargs = task.arguments.decode(message.payload)
            if task.arguments.takes_message:
                args.insert(0, message)
            if task.name in batches:
                answer = await batches[task.name].handle(message, *args)
            elif task.is_async:
                answer = await task.function(*args, **kwargs)
            else:
                answer = await threads.run(_in_thread(task.function, args, kwargs), message)
            return continued(message, task, self._verdict(task, message.headers, answer))

        return dispatch

    def _verdict(self, task: AnyTask, headers: Mapping[str, str], answer: object) -> Answer:
        """Return the result for a message from what its function returned."""
        if answer is None or isinstance(answer, KINDS):
            return answer
        kept = self._queue_keeps_results if task.definition.keeps_results is None else task.definition.keeps_results
        if (own := headers.get(RESULT_HEADER)) is not None:
            kept = own == KEPT
        return Acknowledge(result=task.arguments.encode_answer(answer)) if kept else None

    def _returned(self, message: WorkMessage) -> Defer:
        """Return a message whose task this worker does not have, so that another worker can take it."""
        name = message.headers.get(TASK_HEADER, "")
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s.get(name, -_REMIND_S) >= _REMIND_S:
            self._told_s[name] = now_s
            known = ", ".join(sorted(self._tasks))
            _log.warning(
                "Returned a job of task %r to queue %s for another worker: this worker has %s.",
                name,
                message.queue,
                known,
                extra={"queue": message.queue, "message_id": message.id},
            )
        return Defer(_RETURN_MS)


def task_handler(tasks: Mapping[str, AnyTask], policy: HandlerPolicy, declared: Mapping[str, object]) -> QueueHandler:
    """Return what handles the queue of some tasks."""
    dispatch = TaskDispatch(tasks, policy, declared)
    return QueueHandler(
        policy=policy,
        name=",".join(tasks),
        handle=dispatch.handle,
        kind_of=dispatch.kind_of,
        policy_of=dispatch.policy_of,
        declared=declared,
        learn=dispatch.learn,
        schedules={
            name: task.definition.schedule(task.message()) for name, task in tasks.items() if task.definition.recurs
        },
    )


def _in_thread(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> Callable[[WorkMessage], Answer]:
    call = partial(function, *args, **kwargs)
    return lambda _: cast("Answer", call())
