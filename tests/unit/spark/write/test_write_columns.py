"""Which DataFrames can be written, and where their rows go."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tidelog.errors import ConfigError
from tidelog.spark.write._write_columns import check_columns, parts

STRING, BINARY, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()


def _headers(value: DataType) -> ArrayType:
    return ArrayType(StructType([StructField("key", STRING), StructField("value", value)]))


def _schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    "schema",
    [
        _schema(value=STRING, topic=STRING),
        _schema(value=BINARY, key=STRING, topic=STRING),
        _schema(key=BINARY, value=STRING, topic=STRING, partition=INT, headers=_headers(BINARY)),
        _schema(value=STRING, topic=STRING, offset=LONG, timestampType=INT),
    ],
)
def test_columns_of_sparks_kafka_connector_can_be_written(schema: StructType) -> None:
    check_columns(schema, None)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (_schema(topic=STRING, key=STRING), "column value is required"),
        (_schema(value=STRING), "set the option topic"),
        (_schema(value=INT, topic=STRING), "the column value is int; it must be string or binary"),
        (_schema(value=STRING, key=LONG, topic=STRING), "the column key is bigint"),
        (_schema(value=STRING, topic=BINARY), "the column topic is binary; it must be string"),
        (_schema(value=STRING, topic=STRING, partition=LONG), "partition is bigint; it must be int"),
        (_schema(value=STRING, topic=STRING, headers=MapType(STRING, BINARY)), "the column headers is map"),
        (_schema(value=STRING, topic=STRING, headers=_headers(STRING)), "it must be array"),
    ],
)
def test_other_columns_are_refused_with_the_mend(schema: StructType, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_columns(schema, None)


def test_with_the_option_topic_no_column_topic_is_needed_and_one_that_is_there_is_not_looked_at() -> None:
    check_columns(_schema(value=STRING), "out")
    check_columns(_schema(value=STRING, topic=INT), "out")
    (part,) = parts(pa.record_batch({"value": ["a"], "topic": ["other"]}), "out")
    assert part.topic == "out"


def test_rows_are_sorted_by_topic_and_partition_in_their_order() -> None:
    batch = pa.record_batch(
        {
            "value": ["a", "b", "c", "d", "e", "f"],
            "topic": ["x", "y", "x", "y", "x", "x"],
            "partition": pa.array([1, None, None, 0, 1, None], pa.int32()),
            "ignored": [1, 2, 3, 4, 5, 6],
        }
    )
    found = {(part.topic, part.partition): part.rows.to_pydict() for part in parts(batch, None)}
    assert found == {
        ("x", 1): {"value": ["a", "e"]},
        ("x", None): {"value": ["c", "f"]},
        ("y", None): {"value": ["b"]},
        ("y", 0): {"value": ["d"]},
    }


def test_rows_of_one_topic_are_handed_on_uncopied() -> None:
    values = pa.array(["a", "b"])
    (part,) = parts(pa.record_batch({"value": values, "topic": ["x", "x"]}), None)
    assert part.rows.column("value").buffers()[2].address == values.buffers()[2].address


def test_a_batch_without_rows_goes_nowhere() -> None:
    empty = pa.record_batch({"value": pa.array([], pa.string()), "topic": pa.array([], pa.string())})
    assert list(parts(empty, None)) == []
    assert list(parts(empty, "x")) == []


def test_a_topic_that_is_null_is_refused() -> None:
    with pytest.raises(ConfigError, match="topic is null in some rows"):
        list(parts(pa.record_batch({"value": ["a", "b"], "topic": ["x", None]}), None))


def test_a_partition_below_0_is_refused() -> None:
    batch = pa.record_batch({"value": ["a"], "partition": pa.array([-1], pa.int32())})
    with pytest.raises(ConfigError, match="partition is -1"):
        list(parts(batch, "x"))
