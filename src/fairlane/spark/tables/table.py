"""The definition of a table: its name, its columns with their meaning, and its folders. And helpers for columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fairlane.model.partitions import MARK

TEXT, LONG, INT, REAL, FLAG, DATE = StringType(), LongType(), IntegerType(), DoubleType(), BooleanType(), DateType()
TEXTS = ArrayType(StringType())
TIME = TimestampType()
HISTOGRAM = ArrayType(StructType([StructField("bucket", INT), StructField("count", LONG)]))
"""A histogram of whole numbers, as ``fairlane.spark.tables.histogram`` makes it."""

DAY = ("day", DATE, "the UTC day; also the folder")
IS_COMPLETE = "is_complete"
_MARK = (
    IS_COMPLETE,
    FLAG,
    "whether the journal is complete on this day; if not, the table `gaps` tells what is missing",
)

INSTANTS = frozenset(
    f"{name}_ms"
    for name in (
        *("at", "due", "deadline", "expires", "enqueued", "first_leased", "last_leased", "done", "redriven"),
        *("hour", "window", "from", "until", "first_seen", "last_seen", "begun", "ready", "leased", "end"),
    )
)
"""The columns that are instants. The other columns that end in ``_ms`` are durations."""
TWIN_OF = "twin_of"
"""The metadata of a column that is the same instant as another one, as a TIMESTAMP: the name of the other one."""


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """One table of the pipeline.

    Attributes:
        name: its name, and that of its folder.
        meaning: what one row stands for.
        schema: its columns. The meaning of each is in the column's metadata, as ``comment``.
        partitions: the columns that are folders.
        version: of what its columns mean and how they are computed. A run rebuilds a table of another version.
    """

    name: str
    meaning: str
    schema: StructType
    partitions: tuple[str, ...] = ("day",)
    version: int = 1


def columns(*told: tuple[str, DataType, str], is_marked: bool = True) -> StructType:
    """Return a schema of names, types and meanings, with the mark of incomplete days before the folders.

    Next to each instant in milliseconds is a TIMESTAMP.
    """
    names = [name for name, _, _ in told]
    at = min(names.index(name) for name in ("is_open", "day") if name in names)
    fields = []
    for name, kind, meaning in (*told[:at], _MARK, *told[at:]) if is_marked else told:
        fields.append(StructField(name, kind, metadata={"comment": meaning}))
        if name in INSTANTS:
            fields.append(StructField(twin(name), TIME, metadata={"comment": f"{name} as a TIMESTAMP", TWIN_OF: name}))
    return StructType(fields)


def twin(name: str) -> str:
    """Return the name of the TIMESTAMP next to an instant in milliseconds."""
    return "at" if name == "at_ms" else f"{name.removesuffix('_ms')}_at"


def without_twins(schema: StructType) -> StructType:
    """Return a schema without the TIMESTAMPs."""
    return StructType([field for field in schema if TWIN_OF not in field.metadata])


def value_of(field: StructField) -> Expression:
    """Return the value of a column of a table; a TIMESTAMP is made from the milliseconds next to it."""
    instant = field.metadata.get(TWIN_OF)
    value = F.col(field.name) if instant is None else F.timestamp_millis(F.col(instant))
    return value.cast(field.dataType).alias(field.name, metadata=field.metadata)


def shaped(frame: DataFrame, table: TableDefinition) -> DataFrame:
    """Return a frame with exactly the columns of a table, in order and with their types.

    Rows are complete unless the frame says otherwise: a run knows of gaps, and marks the days that they concern.
    """
    marked = frame if IS_COMPLETE in frame.columns else frame.withColumn(IS_COMPLETE, F.lit(col=True))
    return marked.select(*[value_of(field) for field in table.schema])


def empty(spark: SparkSession, columns: StructType) -> DataFrame:
    """Return a frame without rows. ``createDataFrame`` would make this the active session of the caller's thread."""
    return spark.range(0).select(*[F.lit(None).cast(field.dataType).alias(field.name) for field in columns])


def whole_queue(queue: Expression | str) -> Expression:
    """Return the queue that a partition belongs to; for any other queue its own name."""
    return F.substring_index(queue, MARK, 1)  # no other name of a queue has the mark


def key_text(path: Expression | str) -> Expression:
    """Return a fairness key as text: a path with slashes."""
    names = F.col(path) if isinstance(path, str) else path
    return F.when(names.isNotNull(), F.concat_ws("/", names))


def group_of(groups: Mapping[str, str]) -> Expression:
    """Return the group of the column ``journal_id``; a journal without one is that of a server on its own."""
    named = [F.lit(text) for journal_id, group in groups.items() if group for text in (journal_id, group)]
    if not named:
        return F.lit("")
    return F.coalesce(F.try_element_at(F.create_map(*named), F.col("journal_id")), F.lit(""))


def number_of(message_id: Expression | str) -> Expression:
    """Return what the column ``message_id`` says as a number. Texts that differ in the last digits sort slowly."""
    return F.conv(message_id, 16, 10).cast("long")


def id_of(message: Expression | str) -> Expression:
    """Return what the column ``message_id`` says of a message of which ``number_of`` gave the number."""
    return F.lower(F.lpad(F.hex(message), 16, "0"))


def uuid_of(message_id: str, journal_id: str) -> Expression:
    """Return the id of a message as callers know it, from these two columns; see ``fairlane.model.ids``."""
    variant = F.translate(F.substring(journal_id, 1, 1), "0123456789abcdef", "89ab" * 4)
    number, journal = F.col(message_id), F.col(journal_id)
    return F.concat(
        *(number.substr(2, 8), F.lit("-"), number.substr(10, 4), F.lit("-8"), number.substr(14, 3), F.lit("-")),
        *(variant, journal.substr(2, 3), F.lit("-"), journal.substr(5, 12)),
    )


def day_of(at_ms: Expression | str) -> Expression:
    """Return the UTC day of an instant. This is arithmetic, so the time zone of the session does not matter."""
    number = F.floor((F.col(at_ms) if isinstance(at_ms, str) else at_ms) / F.lit(DAY_MS)).cast("int")
    return F.date_add(F.lit("1970-01-01").cast("date"), number)


def start_of(day: Expression | str) -> Expression:
    """Return the instant at which a day began."""
    return F.datediff(day, F.lit("1970-01-01").cast("date")).cast("long") * DAY_MS


def hour_of(at_ms: Expression | str) -> Expression:
    """Return the instant at which the hour of an instant began."""
    instant = F.col(at_ms) if isinstance(at_ms, str) else at_ms
    return instant - F.pmod(instant, F.lit(HOUR_MS))


HOUR_MS = 3_600_000
DAY_MS = 86_400_000
