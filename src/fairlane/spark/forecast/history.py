"""The history of arrivals: how many messages of each tenant came to a queue in each hour, from ``tenant_usage``.

Only finished hours count. An hour is finished if the tables have a later one: the newest hour reaches as far as the
journal. The first hour of the tables may have begun before the journal did, so it doesn't count either. Days with a gap
in the journal are left out as a whole, because their counts are too low. In an hour that counts, a tenant without a row
sent nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from fairlane.errors import InvalidArgument, QueueNotFound
from fairlane.lakehouse import Lakehouse
from fairlane.spark.whatif.rows import Flags, Ints, ints

Floats: TypeAlias = NDArray[np.float64]

HOUR_MS: Final = 3_600_000
DAY_HOURS: Final = 24
DAYS_MAX: Final = 56
"""The history goes back this far: eight weeks."""
_USAGE = "tenant_usage"
_GAPS = "gaps"


@dataclass(frozen=True, slots=True)
class History:
    """Arrivals of one queue by tenant and hour.

    Attributes:
        queue: the queue.
        first_hour: the number of the first hour, counted from the epoch, in UTC.
        tenants: the top keys, those with the most messages first.
        counts: how many messages came, one row for each tenant and one column for each hour.
        is_known: which hours count.
        days_left_out: the days that are incomplete.
    """

    queue: str
    first_hour: int
    tenants: tuple[str, ...]
    counts: Floats
    is_known: Flags
    days_left_out: tuple[date, ...] = ()

    @property
    def end_hour(self) -> int:
        """The first hour after the history, which is the first of a forecast."""
        return self.first_hour + self.is_known.size

    @property
    def days(self) -> float:
        """How many days of hours count."""
        return float(self.is_known.sum()) / DAY_HOURS

    def before(self, hour: int) -> History:
        """Return the history up to and without an hour."""
        end = max(0, hour - self.first_hour)
        return History(
            queue=self.queue,
            first_hour=self.first_hour,
            tenants=self.tenants,
            counts=self.counts[:, :end],
            is_known=self.is_known[:end],
            days_left_out=self.days_left_out,
        )


def day_of_hour(hour: int) -> date:
    """Return the UTC day of an hour."""
    return datetime.fromtimestamp(hour * HOUR_MS // 1000, UTC).date()


def read_histories(tables: Lakehouse, queues: Sequence[str] = ()) -> list[History]:
    """Return the history of some queues, or of all that had messages, by name.

    Raises:
        InvalidArgument: the tables have no usage.
        QueueNotFound: the tables have no such queue.
    """
    table = _usage(tables)
    names = table["queue"].unique().to_pylist()
    for queue in queues:
        if queue not in names:
            raise QueueNotFound(f"The tables have no queue {queue!r}. Its queues: {', '.join(sorted(names))}.")
    hours = ints(table["hour_ms"]) // HOUR_MS
    first, end = int(hours.min()) + 1, int(hours.max())
    left_out = _incomplete_days(tables, table)
    known = np.array([day_of_hour(hour) not in left_out for hour in range(first, end)], dtype=np.bool_)
    span = (first, max(first, end))
    wanted = sorted(queues or names)
    found = (_history(table, hours, queue, span, (known, tuple(sorted(left_out)))) for queue in wanted)
    return [one for one in found if queues or one.tenants]


def _usage(tables: Lakehouse) -> pa.Table:
    files = tables.files(_USAGE)
    days = sorted(date.fromisoformat(file.partition["day"]) for file in files)
    if not days:
        raise InvalidArgument(f"The tables at {tables.address} are empty. Fill them with 'fairlane pipeline run'.")
    dataset = tables.dataset(_USAGE)
    columns = ["queue", "top_key", "hour_ms", "enqueued", "day"]
    columns += [name for name in ("is_complete",) if name in dataset.schema.names]
    return dataset.to_table(columns=columns, filter=ds.field("day") >= days[-1] - timedelta(days=DAYS_MAX))


def _incomplete_days(tables: Lakehouse, usage: pa.Table) -> set[date]:
    """Return the days that miss events of a journal: as rows are marked, and for days without rows by the gaps."""
    found: set[date] = set()
    if "is_complete" in usage.column_names:
        found |= set(usage.filter(pc.invert(pc.fill_null(usage["is_complete"], fill_value=True)))["day"].to_pylist())
    if tables.files(_GAPS):
        for gap in tables.dataset(_GAPS).to_table(columns=["until_ms", "day"]).to_pylist():
            found |= set(_days_of(gap))
    return found


def _days_of(gap: dict[str, Any]) -> Iterator[date]:
    first: date = gap["day"]
    last = first if gap["until_ms"] is None else day_of_hour(gap["until_ms"] // HOUR_MS)
    return (first + timedelta(days=at) for at in range((last - first).days + 1))


def _history(
    table: pa.Table, hours: Ints, queue: str, span: tuple[int, int], known: tuple[Flags, tuple[date, ...]]
) -> History:
    first, end = span
    is_ours = pc.equal(table["queue"], queue).to_numpy(zero_copy_only=False) & (hours >= first) & (hours < end)
    ours = table.filter(pa.array(is_ours))
    coded = ours["top_key"].combine_chunks().dictionary_encode()
    coded = coded if isinstance(coded, pa.Array) else pa.concat_arrays(coded.chunks)
    names = coded.dictionary.to_pylist()
    counts = np.zeros((len(names), end - first), dtype=np.float64)
    np.add.at(counts, (ints(coded.indices), hours[is_ours] - first), ints(ours["enqueued"]))
    sums = counts.sum(axis=1)
    order = sorted((at for at in range(len(names)) if sums[at]), key=lambda at: (-sums[at], names[at]))
    return History(
        queue=queue,
        first_hour=first,
        tenants=tuple(names[at] for at in order),
        counts=counts[order],
        is_known=known[0],
        days_left_out=known[1],
    )
