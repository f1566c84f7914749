"""The session of the pipelines: what it asks of Spark and of Hadoop beneath it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_no_checksum_file_is_written_beside_files_on_a_local_disk(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.readStream.format("rate").load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120), "the query has not come to its end"
    finally:
        query.stop()
    written = {each.name for each in (tmp_path / "checkpoint").rglob("*") if each.is_file()}
    assert {"metadata", "0"} <= written
    assert not [name for name in written if name.endswith(".crc")]
