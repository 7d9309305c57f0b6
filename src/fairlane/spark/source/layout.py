"""The columns that Spark asks for, as Arrow wants them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from fairlane.errors import InvalidArgument


def spark_schema(schema: pa.Schema) -> StructType:
    """Return a schema as Spark's."""
    found: StructType = from_arrow_schema(schema)
    return found


def layout(asked: StructType, known: pa.Schema) -> pa.Schema:
    """Return the columns of a schema that may be the user's own: some of those there are, in any order.

    Raises:
        InvalidArgument: a column is not there, or is of another type.
    """
    types = {field.name: field.dataType for field in spark_schema(known).fields}
    for field in asked.fields:
        if field.name not in types:
            raise InvalidArgument(f"There is no column {field.name!r:.100}; there is {', '.join(types)}.")
        if field.dataType != types[field.name]:
            expected = types[field.name].simpleString()
            raise InvalidArgument(f"Column {field.name} is {expected}, not {field.dataType.simpleString()}.")
    return pa.schema([pa.field(one.name, known.field(one.name).type, nullable=one.nullable) for one in asked.fields])


def laid_out(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a batch that are asked for; Spark takes them only if the schema is the very one."""
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
