"""Methods for queue templates, for asyncio. Those for threads are made from this file by ``tools/sync_verbs.py``."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.model.policy import QueuePolicy
from fairlane.verbs.config import ListConfig, SetConfig
from fairlane.verbs.methods.base_aio import AsyncVerbs
from fairlane.verbs.methods.conversions import given_fields
from fairlane.verbs.templates import TEMPLATE_PREFIX, QueueTemplate, template_value, templates_in


class AsyncTemplateVerbs(AsyncVerbs):
    """What operators set for new queues, by the pattern of their names. Each template is a config value."""

    async def set_queue_template(
        self,
        pattern: str,
        policy: QueuePolicy | Mapping[str, object] | None = None,
        *,
        auto_create: bool = False,
        queues_max: int = 1_000,
        by: str | None = None,
    ) -> None:
        """Set the template of new queues whose names match a pattern. Queues that exist are not changed.

        The template for the exact name applies, or else the one with the longest matching prefix. It is the config
        value ``queue_template:PATTERN``.

        Args:
            pattern: a name, a prefix followed by a star, or a star for all names.
            policy: the fields that policies of new queues begin with; those of ``create_queue`` override them.
            auto_create: create a missing queue when a message is enqueued or leased there.
            queues_max: create no more queues once there are this many, of any name.
            by: the caller, recorded in the journal.

        Raises:
            InvalidArgument: nothing was changed.
        """
        fields = given_fields(policy)
        template = QueueTemplate(policy=fields, auto_create=auto_create, queues_max=queues_max)
        await self.call(SetConfig(values={TEMPLATE_PREFIX + pattern: template_value(template)}), by=by)

    async def remove_queue_template(self, pattern: str, *, by: str | None = None) -> None:
        """Remove a queue template. Queues that it created stay."""
        await self.call(SetConfig(values={TEMPLATE_PREFIX + pattern: None}), by=by)

    async def queue_templates(self) -> dict[str, QueueTemplate]:
        """Return all queue templates, by pattern."""
        answer = await self.call(ListConfig(prefix=TEMPLATE_PREFIX))
        return templates_in(answer.values)
