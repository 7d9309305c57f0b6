"""All methods together, for asyncio. Those for threads are made from this file by ``tools/sync_verbs.py``."""

from __future__ import annotations

from typing import TypeVar

from fairlane.verbs.methods.admin_aio import AsyncAdminVerbs
from fairlane.verbs.methods.batches_aio import AsyncBatchVerbs
from fairlane.verbs.methods.messages_aio import AsyncMessageVerbs
from fairlane.verbs.methods.schedules_aio import AsyncScheduleVerbs
from fairlane.verbs.methods.status_aio import AsyncStatusVerbs
from fairlane.verbs.methods.templates_aio import AsyncTemplateVerbs
from fairlane.verbs.methods.uploads_aio import AsyncUploadVerbs

M = TypeVar("M")


class AsyncAllVerbs(
    AsyncMessageVerbs[M],
    AsyncUploadVerbs,
    AsyncStatusVerbs,
    AsyncBatchVerbs,
    AsyncAdminVerbs,
    AsyncScheduleVerbs,
    AsyncTemplateVerbs,
):
    """Every verb as a method: what brokers and clients have in common. The parameter is what ``lease`` returns."""
