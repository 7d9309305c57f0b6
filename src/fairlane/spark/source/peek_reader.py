"""Messages to be looked at: those of a queue, or dead letters, in a batch, without leasing any.

The driver asks for the ids of all that are wanted and deals them out; tasks then ask for the messages by id. What left
the queue in between is not in the frame; what came in between is not either. So a frame is a look at the queue, not a
snapshot of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, In, InputPartition

from fairlane.client import Client, DeadLetterFilter
from fairlane.model.limits import BATCH_MAX
from fairlane.model.message import MessageView
from fairlane.spark.executors import Versions, check_versions, versions
from fairlane.spark.source.message_columns import BODY, views_batch
from fairlane.spark.source.options import PeekOptions
from fairlane.spark.source.ranges import split

_PAGE: Final = 500
_IDS_MAX: Final = 2_000
"""The maximum number of ids in one task, which are sent to it."""


@dataclass(frozen=True)
class IdsPartition(InputPartition):
    """Messages by id, and the versions that the task must run."""

    ids: tuple[str, ...]
    driver: Versions


class PeekReader(DataSourceReader):
    """Reads messages without leasing them."""

    def __init__(self, options: PeekOptions, layout: pa.Schema) -> None:
        self._options = options
        self._layout = layout
        self._wanted = DeadLetterFilter(
            fairness_key=options.fairness_key,
            error=options.error,
            reason=options.reason,
            ids=None if options.ids is None else tuple(sorted(options.ids)),
        )

    def partitions(self) -> list[InputPartition]:
        """Return the ids of the messages, in parts."""
        with self._options.place.client() as client:
            ids = tuple(self._ids(client))
        least = max(self._options.partitions, -(-len(ids) // _IDS_MAX))
        return [IdsPartition(ids[part.after : part.until], versions()) for part in split(0, len(ids), least=least)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield messages, with payload and headers only if a column needs them."""
        if not isinstance(partition, IdsPartition):  # Spark's way to say that there are none
            return
        check_versions(partition.driver)
        with_body = not BODY.isdisjoint(self._layout.names)
        with self._options.place.working() as client:
            for first in range(0, len(partition.ids), _PAGE):
                ids = partition.ids[first : first + _PAGE]
                while views := self._some_of(client, ids, with_body=with_body):
                    yield views_batch(views, layout=self._layout)
                    seen = {view.id for view in views}
                    ids = tuple(each for each in ids if each not in seen)

    def _some_of(self, client: Client, ids: tuple[str, ...], *, with_body: bool) -> list[MessageView]:
        """Return as many of these messages as fit into one answer; none if none of them is left."""
        if not ids:
            return []
        wanted = msgspec.structs.replace(self._wanted, ids=ids)
        return client.peek(self._options.queue, len(ids), wanted=wanted, with_body=with_body)

    def _ids(self, client: Client) -> Iterator[str]:
        after: str | None = None
        while True:
            views = client.peek(self._options.queue, BATCH_MAX, after=after, wanted=self._wanted)
            yield from (view.id for view in views)
            if len(views) < BATCH_MAX:
                return
            after = views[-1].id


class FilteringPeekReader(PeekReader):
    """Reads messages with filters pushed down to the broker, for a frame that is used only once."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Push down the filters that the broker supports: ids, a fairness key, the reason of a dead letter."""
        for one in filters:
            if isinstance(one, EqualTo) and one.attribute == ("reason",) and self._wanted.reason is None:
                self._wanted = msgspec.structs.replace(self._wanted, reason=one.value)
            elif isinstance(one, EqualTo) and one.attribute == ("fairness_key",) and self._wanted.fairness_key is None:
                self._wanted = msgspec.structs.replace(self._wanted, fairness_key=tuple(one.value))
            elif isinstance(one, EqualTo | In) and one.attribute == ("id",) and self._wanted.ids is None:
                ids = (one.value,) if isinstance(one, EqualTo) else tuple(one.value)
                self._wanted = msgspec.structs.replace(self._wanted, ids=ids)
            else:
                yield one
