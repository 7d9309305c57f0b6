"""All methods together, for threads. Generated from its twin by ``tools/sync_verbs.py``."""

from __future__ import annotations

from typing import TypeVar

from fairlane.verbs.methods.admin import AdminVerbs
from fairlane.verbs.methods.batches import BatchVerbs
from fairlane.verbs.methods.messages import MessageVerbs
from fairlane.verbs.methods.schedules import ScheduleVerbs
from fairlane.verbs.methods.status import StatusVerbs
from fairlane.verbs.methods.templates import TemplateVerbs
from fairlane.verbs.methods.uploads import UploadVerbs

M = TypeVar("M")


class AllVerbs(
    MessageVerbs[M],
    UploadVerbs,
    StatusVerbs,
    BatchVerbs,
    AdminVerbs,
    ScheduleVerbs,
    TemplateVerbs,
):
    """Every verb as a method: what brokers and clients have in common. The parameter is what ``lease`` returns."""
