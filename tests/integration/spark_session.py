"""One Spark session for all tests of a worker process: two cores, half a gigabyte, nothing outside loopback.

A session costs six seconds and a Java process, so tests share it, and stop what they start in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidelog.java import java_home
from tidelog.spark.runtime._spark_home import lean_spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session_options(directory: Path) -> dict[str, str]:
    """Spark's options for tests, with all of its files below ``directory``."""
    return {
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "60s",
    }


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that finds ``format("tidelog")`` by itself."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    directory = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_HOME"] = str(lean_spark_home(directory))
    os.environ["JAVA_HOME"] = str(java_home())
    builder = SparkSession.builder.master("local[2]").appName("tidelog tests")
    for name, value in session_options(directory).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
