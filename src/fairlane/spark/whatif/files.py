"""The files of an exported journal: their order, gaps, queues and events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fairlane.errors import JournalIncomplete, QueueNotFound
from fairlane.journal.arrow import SCHEMA
from fairlane.journal.schema import NAMES
from fairlane.journal.segments import gaps, segments_in
from fairlane.model.names import is_dlq

MESSAGE_KINDS = ("enqueued", "published", "leased", "acked", "returned", "dead", "removed", "redriven")
STAGING_KIND = "staged"
"""Messages that are not in their queue yet; when they are, ``published`` repeats their terms."""
CHANGE_KINDS = ("queue_set", "queue_removed", "queue_paused", "config_set", "opened")
COLUMNS_UNUSED = frozenset(
    (
        *("size_bytes", "dedup_id", "correlation_id", "cause_id", "token", "expires_ms", "error", "by", "claim"),
        "journal_id",
    )
)
"""The columns that tell nothing of the order of hand-outs or of consumers. All others, also new ones, are read."""
COLUMNS_READ = tuple(name for name in NAMES if name not in COLUMNS_UNUSED)
_CODED = frozenset(("kind", "queue", "owner", "reason", "ended", "priority", "target", "name"))
"""Texts of which there are few different ones: in memory each is a number."""
_SCHEMA = pa.schema(
    [
        (name, pa.dictionary(pa.int32(), pa.string()) if name in _CODED else SCHEMA.field(name).type)
        for name in COLUMNS_READ
    ]
)
_BATCH_ROWS = 65_536


def journal_files(folder: Path | str) -> list[Path]:
    """Return the exported files of a folder, in order.

    Raises:
        JournalIncomplete: there are none, or sequences between them are missing.
    """
    folder = Path(folder)
    found = segments_in(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    if not found:
        raise JournalIncomplete(f"Folder {folder} holds no exported journal: it has no file journal-….parquet.")
    if len(journals := sorted({file.journal_id for file in found})) > 1:
        raise JournalIncomplete(
            f"Folder {folder} holds segments of {len(journals)} journals: {', '.join(journals)}. Keep one there."
        )
    for first, last in gaps(file.covers for file in found):
        raise JournalIncomplete(f"The exported journal in {folder} has a gap: sequences {first} to {last} are missing.")
    return [folder.absolute() / file.name for file in found]  # executors have folders of their own


def read_events(files: Sequence[Path], *, queues: Iterable[str] | None) -> pa.Table:
    """Return the events of queues, or with None of all, with what concerns all queues, in order of their sequences.

    Files may overlap; what two of them hold is read once. Nothing else stays in memory, not even while a file is read.
    """
    wanted = None if queues is None else pa.array(sorted(set(queues)), pa.string())
    table = pa.concat_tables([_part(path, wanted) for path in files], promote_options="default")
    sequences = table.column("sequence")
    if table.num_rows and pc.any(pc.less_equal(sequences[1:], sequences[:-1])).as_py():
        table = _each_once(table)
    return table.unify_dictionaries().combine_chunks()


def _part(path: Path, wanted: pa.Array | None) -> pa.Table:
    """Read the events of a file that are wanted, a batch at a time: most of a file may be of other queues."""
    with pq.ParquetFile(path, read_dictionary=list(_CODED)) as file:
        present = [name for name in COLUMNS_READ if name in file.schema_arrow.names]
        batches = [
            selected(pa.Table.from_batches([batch]), wanted)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=present)
        ]
        table = pa.concat_tables(batches) if batches else file.schema_arrow.empty_table().select(present)
    return as_read(table)


def as_read(table: pa.Table) -> pa.Table:
    """Return events in the columns that a recording is made from; a column that is missing is null."""
    for name in COLUMNS_READ:
        if name not in table.column_names:  # an older version of the journal did not tell it
            table = table.append_column(name, pa.nulls(table.num_rows, SCHEMA.field(name).type))
    return table.select(list(COLUMNS_READ)).cast(_SCHEMA)


def selected(table: pa.Table, wanted: pa.Array | None) -> pa.Table:
    """Return the events that influence the order of leases, of some queues or of all."""
    is_kind = pc.is_in(table["kind"], pa.array([*MESSAGE_KINDS, *CHANGE_KINDS, STAGING_KIND], pa.string()))
    if wanted is None:
        return table.filter(is_kind)
    is_ours = pc.or_(pc.is_in(table["queue"], wanted), pc.is_null(table["queue"]))
    is_ours = pc.or_(is_ours, pc.and_(pc.equal(table["kind"], "redriven"), pc.is_in(table["target"], wanted)))
    return table.filter(pc.and_(is_ours, is_kind))


def _each_once(table: pa.Table) -> pa.Table:
    """Return events in order, each sequence once."""
    table = table.unify_dictionaries().sort_by("sequence").combine_chunks()
    sequences = table.column("sequence").to_numpy()
    keep = [True, *(sequences[1:] != sequences[:-1]).tolist()]
    return table.filter(pa.array(keep))


@dataclass(slots=True)
class QueueFacts:
    """What the driver needs to know of a queue for planning.

    Attributes:
        messages: how many were enqueued or redriven there.
        throttles: the buckets that they name.
        policies: the policies it has had, as JSON, in order.
    """

    messages: int = 0
    throttles: set[str] = field(default_factory=set)
    policies: list[str] = field(default_factory=list)


def latest_config(files: Sequence[Path]) -> dict[str, str]:
    """Return the config at the end of a journal."""
    found: dict[str, str] = {}
    for path in files:
        table = pq.read_table(path, columns=["kind", "name", "value"])
        for row in table.filter(pc.equal(table["kind"], "config_set")).to_pylist():
            if row["value"] is None:
                found.pop(row["name"], None)
            else:
                found[row["name"]] = row["value"]
    return found


def survey(files: Sequence[Path]) -> dict[str, QueueFacts]:
    """Return a summary of each queue in a journal, without dead-letter queues."""
    found: dict[str, QueueFacts] = {}
    columns = ["kind", "queue", "target", "throttles", "policy_json"]
    for path in files:
        table = pq.read_table(path, columns=columns)
        table = table.filter(pc.is_in(table["kind"], pa.array(["enqueued", "published", "redriven", "queue_set"])))
        is_policy = pc.equal(table["kind"], "queue_set")
        # Policies are not grouped: of A, B and A again, the latest is A.
        for row in table.filter(is_policy).select(["queue", "policy_json"]).to_pylist():
            if not is_dlq(row["queue"]):
                found.setdefault(row["queue"], QueueFacts()).policies.append(row["policy_json"])
        for row in _summed(table.filter(pc.invert(is_policy))):
            name = row["target"] if row["kind"] == "redriven" else row["queue"]
            if name is not None and not is_dlq(name):
                facts = found.setdefault(name, QueueFacts())
                facts.messages += row["count_all"]
                facts.throttles.update(name for name in row["throttles"].split("\x1f") if name)
    return found


def _summed(table: pa.Table) -> list[dict[str, Any]]:
    """Group equal rows of messages; ``count_all`` is their number."""
    joined = pc.fill_null(pc.binary_join(table["throttles"], "\x1f"), "")
    table = table.set_column(table.schema.get_field_index("throttles"), "throttles", joined)
    keys = ["kind", "queue", "target", "throttles"]
    summed: list[dict[str, Any]] = table.group_by(keys, use_threads=False).aggregate([([], "count_all")]).to_pylist()
    return summed


def chosen(found: dict[str, QueueFacts], queues: Sequence[str]) -> list[str]:
    """Return the queues to replay: those named, or all that had messages.

    Raises:
        QueueNotFound: the journal has no such queue.
        JournalIncomplete: there is nothing to replay, or a queue was created before the journal begins.
    """
    for name in queues:
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            raise QueueNotFound(f"The journal has no queue {name!r}. Its queues: {known}.")
    names = [name for name in sorted(queues or found) if found[name].messages]
    if not names:
        raise JournalIncomplete("The journal has no enqueued messages, so there is nothing to replay.")
    for name in names:
        if not found[name].policies:
            cause = f"The journal begins after queue {name!r} was created, so the queue's policy is unknown."
            raise JournalIncomplete(cause)
    return names


def groups(found: dict[str, QueueFacts], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return groups of queues that are replayed together: those that share a throttle, directly or through others."""
    together: list[tuple[set[str], set[str]]] = []
    for name in (name for name, facts in sorted(found.items()) if facts.messages and facts.policies):
        throttles, members = set(found[name].throttles), {name}
        apart = []
        for others, theirs in together:
            if others & throttles:
                throttles |= others
                members |= theirs
            else:
                apart.append((others, theirs))
        together = [*apart, (throttles, members)]
    return sorted(tuple(sorted(members)) for _, members in together if members & set(names))
