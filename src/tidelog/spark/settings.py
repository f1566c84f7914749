"""Where a job on Spark reads, writes and keeps its files: the settings of pipelines, sinks and sources.

Made by the command line or by a program; pickled to tasks. Imports neither Spark nor the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tidelog.spark.cassandra_options import CassandraOptions
from tidelog.spark.lake.lake_note import LakeSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Where a pipeline reads, writes and remembers."""

    bootstrap_servers: str
    directory: Path
    """All that it keeps on disk: ``checkpoints/<pipeline>``, ``lake/``, ``earnings/``, ``tables.sqlite``."""
    trigger: str = "2 seconds"
    """The time between micro-batches; ``available-now`` works off what is there and stops."""
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int | None = 100_000
    format: str = "tidelog"
    """``kafka`` runs the same job through Spark's JVM connector."""
    cassandra: str | None = None
    """Contact points, ``host[:port],…``; None keeps tables in SQLite and the lake."""
    keyspace: str = "tidelog"
    cassandra_options: CassandraOptions = field(default_factory=CassandraOptions)
    """Login, TLS, consistency and the rest, for Cassandra alone."""
    lake_catalog: str | None = None
    """The URI of a REST catalog; None: that of the lake that is there, one of its own for a new one."""
    lake_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For the REST catalog and the object store, in PyIceberg's names; there may be secrets in them."""
    lake_warehouse: str | None = None
    """The URI in an object store under which a new lake's tables are; None: in its directory."""
    client_options: Mapping[str, str] = field(default_factory=dict)
    """Further ``kafka.*`` options for sources and sinks, without the prefix."""
    min_partitions: int | None = None
    """At least so many tasks read a micro-batch; None makes about one for each core."""
    state_partitions: int | None = None
    """Parts of a new state, whatever the number of cores is later; None takes the pipeline's default."""
    topics_exist: bool = False
    """The topics of the pipelines exist: no pipeline needs to check."""
    extensions: tuple[object, ...] = ()
    """Settings that only some pipelines have, each an instance of a class of theirs."""

    def extension(self, kind: type[T]) -> T:
        """The settings of this class; its defaults where none are given."""
        return next((each for each in self.extensions if isinstance(each, kind)), kind())

    def checkpoint(self, pipeline: str) -> Path:
        """Where the pipeline's streaming query keeps its progress."""
        return self.directory / "checkpoints" / pipeline

    @property
    def lake(self) -> Path:
        """The root of the lake."""
        return self.directory / "lake"

    @property
    def lake_settings(self) -> LakeSettings:
        """Which lake, and where its catalog and its tables are."""
        return LakeSettings(self.lake, self.lake_catalog, self.lake_properties, self.lake_warehouse)

    @property
    def tables(self) -> Path:
        """The SQLite file with the upserted tables."""
        return self.directory / "tables.sqlite"


def client_options(settings: PipelineSettings) -> dict[str, str]:
    """The options of a client that asks the cluster for something that Spark does not ask for."""
    return {**settings.client_options, "bootstrap.servers": settings.bootstrap_servers}


def connector_options(settings: PipelineSettings) -> dict[str, str]:
    """The options that sources and sinks share."""
    passed = {f"kafka.{name}": value for name, value in settings.client_options.items()}
    return {"kafka.bootstrap.servers": settings.bootstrap_servers, **passed}
