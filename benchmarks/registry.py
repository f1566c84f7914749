"""Every benchmark by the name it is called by, who takes part in it, and where its data goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType

from benchmarks import (
    authorizer,
    client_consumer,
    client_producer,
    codec,
    disk,
    failover,
    footprint,
    heartbeats,
    latency,
    log_size,
    neighbour,
    observing,
    quota_cost,
    quota_instructions,
    quotas,
    replay,
    replication,
    report,
    request_cost,
    spark_alone,
    spark_executors,
    spark_partitions,
    spark_pipelines,
    spark_source,
    throughput,
    tls,
)
from benchmarks.figures import OLD_PEER, OURS, PEER, Figure
from benchmarks.report import LABELS, Cells

SPARK_LABELS = {OURS: "Tidelog", PEER: "Spark's connector"}


@dataclass(frozen=True)
class Benchmark:
    """A module with a `NAME` and a `measure`."""

    module: ModuleType
    contestants: tuple[str, ...] = (OURS, PEER)
    labels: Mapping[str, str] = field(default_factory=lambda: LABELS)
    on_disk: bool = False
    """Whether its data belongs on a disk, not in memory."""
    on_request: bool = False
    """Whether it is run only when it is named, and is no part of the page."""
    show: Callable[[Sequence[Figure], Mapping[str, str]], Cells] = report.table
    """How its figures become a table."""


BENCHMARKS: dict[str, Benchmark] = {
    "cost": Benchmark(request_cost),
    "throughput": Benchmark(throughput),
    "latency": Benchmark(latency),
    "tls": Benchmark(tls),
    "authorizer": Benchmark(authorizer, (OURS,)),
    "observing": Benchmark(observing, (OURS,)),
    "replication": Benchmark(replication, (OURS, PEER, OLD_PEER)),
    "disk": Benchmark(disk, on_disk=True),
    "footprint": Benchmark(footprint),
    "log-size": Benchmark(log_size),
    "replay": Benchmark(replay),
    "groups": Benchmark(heartbeats),
    "failover": Benchmark(failover, (OURS, OLD_PEER)),
    "neighbour": Benchmark(neighbour, on_request=True, show=report.matrix),
    "quotas": Benchmark(quotas, on_request=True),
    "quota-cost": Benchmark(quota_cost, (OURS,), on_request=True),
    "quota-instructions": Benchmark(quota_instructions, (OURS,), on_request=True),
    "codec": Benchmark(codec, (OURS,)),
    "client-consumer": Benchmark(client_consumer),
    "client-producer": Benchmark(client_producer),
    "spark-source": Benchmark(spark_source, labels=SPARK_LABELS),
    "spark-partitions": Benchmark(spark_partitions, labels=SPARK_LABELS),
    "spark-pipelines": Benchmark(spark_pipelines, labels=SPARK_LABELS),
    "spark-alone": Benchmark(spark_alone, (OURS,), labels=SPARK_LABELS, show=report.matrix),
    "spark-executors": Benchmark(spark_executors, (OURS,), labels=SPARK_LABELS, show=report.matrix),
}
