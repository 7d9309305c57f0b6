"""All methods together, for threads. Generated from its twin by ``tools/sync_verbs.py``."""

from __future__ import annotations

from typing import TypeVar

from fairlane.verbs.methods.admin import AdminVerbs
from fairlane.verbs.methods.batches import BatchVerbs
from fairlane.verbs.methods.messages import MessageVerbs
from fairlane.verbs.methods.templates import TemplateVerbs

M = TypeVar("M")


class AllVerbs(MessageVerbs[M], BatchVerbs, AdminVerbs, TemplateVerbs):
    """Every verb as a method: what brokers and clients have in common. The parameter is what ``lease`` returns."""
