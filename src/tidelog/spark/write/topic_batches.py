"""``foreachBatch`` into a topic, exactly once: the way of ``outputMode("update")``.

    totals.writeStream.outputMode("update").foreachBatch(topic_batches({**broker, "topic": "totals"}))

Spark 4.3 takes a Python data source for a sink that can append and be overwritten, and has no way for one to
say that updates may be appended, which Spark's own Kafka connector says of itself. Each micro-batch is
written as a batch instead, under the query's own id and the micro-batch's number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID = "sql.streaming.queryId"


def topic_batches(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """A function for ``foreachBatch``; ``options`` are those of a batch write to ``format("tidelog")``.

    ``txnAppId`` is the query's id and the topic unless it is set; ``txnVersion`` is the micro-batch's number.
    """
    given = {name.lower(): name for name in options}
    if "txnversion" in given:
        raise ConfigError(f"option {given['txnversion']} is the number of each micro-batch: leave it out")
    app_id = options[given["txnappid"]].strip() if "txnappid" in given else None
    topic = options[given["topic"]].strip() if "topic" in given else ""
    guarantee = options[given["deliveryguarantee"]].strip() if "deliveryguarantee" in given else ""

    def write(batch: DataFrame, batch_id: int) -> None:
        writer = batch.write.format("tidelog").options(**options)
        if guarantee != "at-least-once":
            name = app_id or f"{_query_id(batch)}.{topic}"
            writer = writer.option("txnAppId", name).option("txnVersion", str(batch_id))
        writer.mode("append").save()

    return write


def _query_id(batch: DataFrame) -> str:
    found = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if found is None:
        raise ConfigError("this is not called by a streaming query, which has an id: set the option txnAppId")
    return found
