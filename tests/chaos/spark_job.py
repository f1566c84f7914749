"""The streaming job that the chaos test kills: topic ``input`` through a shuffle into topic ``output``.

A Spark driver: ``python -m tests.chaos.spark_job ADDRESS DIRECTORY MASTER GUARANTEE``. It goes on from
its checkpoint whenever it is started, fails when its query does, and ends when the file ``stop`` appears.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from tests.integration.spark_session import session_options

ROWS_PER_EPOCH = 200
TASKS = 3


def main(address: str, directory: Path, master: str, guarantee: str) -> None:
    """Run until told to stop."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(_spark_home(directory))
    builder = SparkSession.builder.master(master).appName("tidelog chaos")
    for name, value in session_options(directory).items():
        builder = builder.config(name, value)
    # Killed executors are replaced for as long as the test likes, and tasks run again, as in a cluster.
    builder = builder.config("spark.executor.memory", "512m").config("spark.task.maxFailures", "4")
    session = builder.config("spark.deploy.maxExecutorRetries", "-1").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    source = session.readStream.format("tidelog").option("kafka.bootstrap.servers", address)
    rows = source.options(subscribe="input", startingOffsets="earliest", maxOffsetsPerTrigger=ROWS_PER_EPOCH)
    copies = rows.load().selectExpr("key", "concat('copy of ', cast(value as string)) value")
    sink = copies.repartition(TASKS, "key").writeStream.format("tidelog")
    query = (
        sink.option("kafka.bootstrap.servers", address)
        .options(topic="output", deliveryGuarantee=guarantee)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )
    while not (directory / "stop").exists():
        if query.awaitTermination(1):
            raise SystemExit("the query has ended by itself")
    query.stop()
    session.stop()


def _spark_home(directory: Path) -> Path:
    """Spark's files under another name: executors of a local cluster work below it, not in the package."""
    home = directory / "spark-home"
    home.mkdir(exist_ok=True)
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work" and not (home / entry.name).exists():
            (home / entry.name).symlink_to(entry)
    return home


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
