"""Schemas between Spark and Arrow: the columns that a query asks for."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from fairlane.errors import InvalidArgument


def spark_schema(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as a Spark schema."""
    found: StructType = from_arrow_schema(schema)
    return found


def layout(asked: StructType, known: pa.Schema) -> pa.Schema:
    """Return the Arrow schema for a schema that the user may have set: some of the known columns, in any order.

    Raises:
        InvalidArgument: a column is unknown, or has another type.
    """
    types = {field.name: field.dataType for field in spark_schema(known).fields}
    for field in asked.fields:
        if field.name not in types:
            raise InvalidArgument(f"Unknown column {field.name!r:.100}. Known columns: {', '.join(types)}.")
        if field.dataType != types[field.name]:
            expected = types[field.name].simpleString()
            raise InvalidArgument(f"Column {field.name} is {expected}, not {field.dataType.simpleString()}.")
    return pa.schema([pa.field(one.name, known.field(one.name).type, nullable=one.nullable) for one in asked.fields])


def laid_out(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the requested columns of a batch. Spark accepts a batch only if its schema matches exactly."""
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
