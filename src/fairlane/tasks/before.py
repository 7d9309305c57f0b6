"""The jobs before a job: the members of a fan-out for its last job, and in a chain the job that has just been done.

``fairlane.verbs.predecessors`` has the header that names them. Another header names their tasks, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from fairlane.verbs.predecessors import BEFORE_HEADER, Predecessors, predecessors_in, written

BEFORE_TASKS_HEADER: Final = "fairlane-before-tasks"
"""The header that names the tasks of the jobs before a job: a JSON list of names with the number of jobs."""
_TASKS: Final = list[tuple[str, int]]


def tasks_header(tasks: Iterable[tuple[str, int]]) -> dict[str, str]:
    """Return the header that names the tasks of jobs, by the number of jobs that follow each other."""
    return {BEFORE_TASKS_HEADER: msgspec.json.encode(list(tasks)).decode()}


def after_job(queue: str, job_id: str, task: str) -> dict[str, str]:
    """Return the headers of a job that comes after another one."""
    return {BEFORE_HEADER: written([Predecessors(queue, job_id)])} | tasks_header([(task, 1)])


def jobs_of(headers: Mapping[str, str], *, task: str, queue: str) -> Iterator[str]:
    """Yield the ids of the jobs of a task that came before a message.

    Programs without this library name no tasks: then it is the jobs of the queue.
    """
    jobs = predecessors_in(headers.get(BEFORE_HEADER, "[]"))
    named = headers.get(BEFORE_TASKS_HEADER)
    if named is None:
        yield from (job_id for other, job_id in jobs if other == queue)
        return
    tasks = [name for name, count in msgspec.json.decode(named, type=_TASKS) for _ in range(count)]
    yield from (job_id for (_, job_id), name in zip(jobs, tasks, strict=False) if name == task)
