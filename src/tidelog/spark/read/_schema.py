"""The columns of what is read: those of Spark's Kafka connector.

``valueFormat`` changes the type of ``value``; with ``json`` there is a column more, ``corruptValue``, with
the bytes of values that could not be read.
"""

from __future__ import annotations

import json

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.errors import ConfigError
from tidelog.spark.read._source_options import SourceOptions

CORRUPT_VALUE = "corruptValue"

_HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def source_schema(options: SourceOptions) -> StructType | str:
    """The schema; DDL where the fields of JSON values are given in DDL, which only Spark's JVM reads."""
    if options.value_format == "json":
        assert options.value_schema is not None
        return _with_json_values(options, options.value_schema.strip())
    return _columns(options, StringType() if options.value_format == "string" else BinaryType())


def check_schema(options: SourceOptions, schema: StructType) -> None:
    """Refuse a schema that a job has set itself and that is not the one that is read."""
    expected = source_schema(options)
    if isinstance(expected, str):
        # Spark has read this DDL; the columns other than the values are the same whatever is in them.
        expected = _columns(options, schema["value"].dataType if "value" in schema.names else BinaryType())
    if [(each.name, each.dataType) for each in schema] != [(each.name, each.dataType) for each in expected]:
        raise ConfigError("the data source tidelog has its own columns: leave schema() out")


def _columns(options: SourceOptions, value: DataType) -> StructType:
    fields = [
        StructField("key", BinaryType()),
        StructField("value", value),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if options.include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", BinaryType() if options.packed_headers else ArrayType(header)))
    if options.value_format == "json":
        fields.append(StructField(CORRUPT_VALUE, BinaryType()))
    return StructType(fields)


def _with_json_values(options: SourceOptions, schema: str) -> StructType | str:
    if schema.startswith("{"):
        try:
            return _columns(options, StructType.fromJson(json.loads(schema)))
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                "option valueSchema is not the JSON of a StructType: take it from df.schema.json()"
            ) from None
    inner = schema if schema.lower().startswith("struct<") else f"STRUCT<{schema}>"
    columns = ["key BINARY", f"value {inner}", "topic STRING", "partition INT", "offset BIGINT"]
    columns += ["timestamp TIMESTAMP", "timestampType INT"]
    if options.include_headers:
        columns.append("headers BINARY" if options.packed_headers else _HEADERS)
    return ", ".join([*columns, f"{CORRUPT_VALUE} BINARY"])
