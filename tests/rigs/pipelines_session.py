"""A Spark session as pipelines have it: two cores, nothing left in the checkout.

Fixtures of several modules share the one that a process can have, so none of them stops it: it ends with the
process.
"""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from typing import TYPE_CHECKING

from tidelog.spark.pipelines.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@cache
def _directory() -> str:
    directory = tempfile.TemporaryDirectory(prefix="tidelog-spark-")
    atexit.register(directory.cleanup)
    return directory.name


def pipelines_session() -> SparkSession:
    options = {
        "spark.local.dir": _directory(),
        "spark.sql.warehouse.dir": f"{_directory()}/warehouse",
        "spark.driver.memory": "768m",
        "spark.sql.shuffle.partitions": "2",
    }
    session = spark_session("tests", master="local[2]", options=options)
    atexit.register(session.stop)
    return session
