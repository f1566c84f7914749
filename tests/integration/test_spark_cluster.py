"""``format("tidelog")`` on a Spark cluster: a standalone master and a worker, started from PySpark's jars.

The jobs are handed in with ``spark-submit``, as docs/how-to/spark-cluster.md and docs/pipelines say, and run
in an executor: another process than the driver, which finds the data source by itself.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from tests.integration.pipeline_traffic import EarningsTraffic, ledger_totals, send

from tidelog.spark.settings import PipelineSettings
from tidelog.testing import broker
from tidelog_rewards.topics import ensure_topics

SPARK_HOME = Path(pyspark.__file__).parent
START_TIMEOUT_S = 90.0
JOB_TIMEOUT_S = 240.0

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(480)]

JOB = """
import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf

servers, checkpoint = sys.argv[1:]
session = SparkSession.builder.appName("cluster").getOrCreate()
numbers = session.range(1000).selectExpr("cast(id as string) as key", "cast(id * id as string) as value")
writer = numbers.write.format("tidelog").option("kafka.bootstrap.servers", servers)
writer.option("topic", "numbers").mode("append").save()
query = (
    session.readStream.format("tidelog")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", "numbers")
    .option("startingOffsets", "earliest")
    .load()
    .select("key", "value")
    .writeStream.format("tidelog")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", "squares")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
squares = (
    session.read.format("tidelog")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", "squares")
    .load()
)
pid = udf(os.getpid, "long")
rows = squares.select(col("key").cast("string"), col("value").cast("string"), pid().alias("pid")).collect()
print(json.dumps({
    "squares": {row.key: int(row.value) for row in rows},
    "rows": len(rows),
    "workers": sorted({row.pid for row in rows}),
    "executors": session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1,
    "driver": os.getpid(),
}))
session.stop()
"""


@contextmanager
def daemon(directory: Path, *arguments: str) -> Iterator[Path]:
    """A class of Spark's as a process; gives the file with what it says."""
    log = directory / f"{arguments[0].rsplit('.', 1)[-1]}.log"
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", *arguments],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, cwd=directory,
        )  # fmt: skip
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_line(log: Path, pattern: str) -> str:
    """The first group of the pattern, once the process has said it."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while (found := re.search(pattern, log.read_text("utf-8", "replace"))) is None:
        assert time.monotonic() < deadline, log.read_text("utf-8", "replace")
        time.sleep(0.05)
    return found.group(1)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master that has a worker."""
    directory = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        log = stack.enter_context(
            daemon(directory, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1",
                   "--port", "0", "--webui-port", "0")
        )  # fmt: skip
        address = wait_for_line(log, r"Starting Spark master at (spark://\S+)")
        stack.enter_context(
            daemon(directory, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1",
                   "--port", "0", "--webui-port", "0", "--cores", "2", "--memory", "1g",
                   "--work-dir", str(directory / "work"), address)
        )  # fmt: skip
        wait_for_line(log, r"Registering worker (127\.0\.0\.1:\d+)")
        yield address


def submit(master: str, directory: Path, *program: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
                   "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_HOME": str(SPARK_HOME)}  # fmt: skip
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    return subprocess.run(
        [SPARK_HOME / "bin" / "spark-submit", "--master", master,
         *(text for name, value in settings.items() for text in ("--conf", f"{name}={value}")), *program],
        capture_output=True, text=True, env=environment, cwd=directory, timeout=JOB_TIMEOUT_S,
    )  # fmt: skip


def test_a_submitted_job_reads_and_writes_in_executors_of_a_cluster(master: str, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    with broker(topics={"numbers": 4, "squares": 2}) as running:
        done = submit(master, tmp_path, job, running.bootstrap_servers, tmp_path / "checkpoint")
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["squares"] == {str(number): number * number for number in range(1000)}
    assert result["rows"] == 1000
    assert result["executors"] == 1
    assert result["driver"] not in result["workers"]


def test_a_submitted_pipeline_runs_on_a_cluster(master: str, tmp_path: Path) -> None:
    traffic = EarningsTraffic(seed=2)
    module = [sys.executable, "-m", "tidelog.cli.pipeline_submit", "--path"]
    program = subprocess.run(module, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    with broker() as running:
        settings = PipelineSettings(running.bootstrap_servers, tmp_path / "pipelines")
        ensure_topics(settings, partitions=2)
        send(running.bootstrap_servers, traffic.fresh(200))
        arguments = ("--once", "-b", running.bootstrap_servers, "--directory", settings.directory)
        done = submit(master, tmp_path, program, "run", "earnings", *arguments)
        assert done.returncode == 0, done.stderr[-4000:]
        # spark-submit gives everything that the program says to its own standard output.
        assert "stopped after 200 rows in 1 batch" in done.stdout.splitlines()
        assert ledger_totals(settings) == dict(traffic.cents)
