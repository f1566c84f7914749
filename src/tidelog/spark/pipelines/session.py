"""The Spark session that pipelines run in: Java found, the workers' Python chosen, quiet, UTC, small.

Called by the command line, ``make run``, tests and benchmarks. It changes this process's environment
(``JAVA_HOME``, ``PYSPARK_PYTHON``, ``SPARK_HOME``, ``SPARK_LOCAL_IP``), since Spark's launcher reads nothing
else.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import TidelogError
from tidelog.java import java_home
from tidelog.spark.runtime._spark_home import lean_spark_home
from tidelog.spark.runtime.class_archive import archive_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOG_SETTINGS = Path(__file__).parent / "log4j2.properties"
MAX_SHUFFLE_PARTITIONS = 8
QUICK_START = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m "
    "-XX:InitialHeapSize=512m -XX:NewSize=256m"
)
"""For a JVM that shall show results soon: its first compiler alone, and no collections while it grows. In the
first minutes all tiers of compilation were not faster for each event either."""
WORKER_DAEMON = "tidelog.spark.pipelines.worker_daemon"
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LOCAL_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""Spark's default one runs ``readlink`` and ``stat`` as processes for every file on a local disk, where both
write a file aside and rename it."""


class SparkMissingError(TidelogError):
    """PySpark is not installed."""


def spark_session(
    app_name: str,
    *,
    master: str = "local[*]",
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session; ``options`` are Spark's and win over what is set here.

    :raises SparkMissingError: PySpark is not installed.
    :raises JavaNotFoundError: no Java that Spark can run on.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise SparkMissingError('PySpark is not installed: `pip install "tidelog[spark]"` brings it')
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        prepare_environment(local=master.startswith("local"))
    settings = {**default_options(master), **(options or {})}
    if "JAVA_HOME" in os.environ:
        archive = archive_options(Path(os.environ["JAVA_HOME"]))
        settings[JAVA_OPTIONS] = f"{settings[JAVA_OPTIONS]} {archive}"
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if master.startswith("local"):
        _write_no_checksum_files(session)
    return session


def _write_no_checksum_files(session: SparkSession) -> None:
    """Have Hadoop write no ``.crc`` beside every file on a local disk.

    It runs ``chmod`` as a process for each file that it makes: four times for a micro-batch, which writes two
    files into its checkpoint, and twice without these. Spark's own checkpoint files have none by default
    either (:data:`LOCAL_CHECKPOINTS` brings them); those that are there are still checked.
    """
    context = session.sparkContext
    assert context._jvm is not None
    local = context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    local.setWriteChecksum(False)


def prepare_environment(*, local: bool = True) -> None:
    """Set what Spark's launcher and workers read from the environment, where the user did not."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    home = lean_spark_home()
    if home is not None:
        os.environ.setdefault("SPARK_HOME", str(home))
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def default_options(master: str) -> dict[str, str]:
    """What this project sets where Spark's own default is wrong for small streaming jobs."""
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # A shuffle partition costs some milliseconds per batch and a state store per stateful query.
        "spark.sql.shuffle.partitions": str(max(2, min(os.cpu_count() or 2, MAX_SHUFFLE_PARTITIONS))),
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Queries take turns at the cores: see `pipelines.query`.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.daemon.module": WORKER_DAEMON,
        # What is kept of a micro-batch is read once or twice and gone.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / f"tidelog-warehouse-{os.getpid()}"),
        JAVA_OPTIONS: f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
    }
    if master.startswith("local"):
        options["spark.driver.bindAddress"] = options["spark.driver.host"] = "127.0.0.1"
        options["spark.sql.streaming.checkpointFileManagerClass"] = LOCAL_CHECKPOINTS
    return options
