"""What a pipeline is, and what it is told: the interface between the pipelines and everything that runs them.

Each pipeline's ``job.py`` defines ``PIPELINE``, a :class:`Pipeline`; ``pipelines.registry`` lists them; the
command line, the live view of ``make run``, tests and benchmarks run them through this interface alone.
Nothing here imports Spark when it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.spark.cassandra_options import CassandraOptions
from tidelog.spark.lake.lake_note import LakeSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


LANGUAGES = ("ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr", "vi", "zh")
"""In which there are names of countries; of places and carriers in some of them."""


@dataclass(frozen=True, slots=True)
class PhoneSettings:
    """How phone numbers are read, and what is written in their place."""

    clear: bool = False
    """The numbers themselves are written, instead of tokens."""
    keys: Path | None = None
    """The file with the keys of the tokens; None makes one in the pipelines' directory."""
    country: str = "CN"
    """Where a number without an international prefix is from: the app's home market."""
    language: str = "en"
    """Of countries, places and carriers; their Chinese names are there in any case."""


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
    phones: PhoneSettings = PhoneSettings()
    rules: Path | None = None
    """A file of rules for the detecting pipelines; None: those of the package."""
    allow_cut_log: bool = False
    """A backfill of a detecting pipeline judges by what is there, though retention has deleted some of it."""
    topics_exist: bool = False
    """Who runs the pipelines has seen to their topics: none of them needs to look."""

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


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From ``start`` (included) to ``end`` (not included), both aware and in UTC."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """What a backfill did: rows read, rows written per output, rows that went to the dead letters."""

    read: int
    written: Mapping[str, int]
    dead_letters: int
    dropped: int = 0
    """Searches that were given up since they became too large."""


def accept_all(settings: PipelineSettings) -> None:
    """Any settings will do."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline: its names, its topics, and how to start it."""

    name: str
    summary: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    """Topics and tables, as people call them: ``topic ml_user_region``, ``table user_earnings``."""
    start: Callable[[SparkSession, PipelineSettings], StreamingQuery]
    """Starts the streaming query (its name is the pipeline's) and returns at once."""
    backfill: Callable[[SparkSession, PipelineSettings, TimeRange], BackfillReport]
    """Works off a range of event time as one batch; running it twice leaves what running it once leaves."""
    check: Callable[[PipelineSettings], None] = accept_all
    """Refuses, with a sentence and before Spark is started, settings with which it would not be exact."""

    @property
    def group(self) -> str:
        """The consumer group that shows this pipeline's progress and lag."""
        return f"tidelog-pipeline-{self.name}"

    def stores(self, settings: PipelineSettings) -> list[str]:
        """The outputs and where they are: ``topic …``, ``lake …``, ``sqlite …``, ``cassandra KEYSPACE.…``."""
        table = "sqlite " if settings.cassandra is None else f"cassandra {settings.keyspace}."
        found = []
        for output in self.outputs:
            kind, _, name = output.rpartition(" ")
            if kind == "lake and table":
                # Without Cassandra the lake is their table.
                found += [f"lake {name}", *([] if settings.cassandra is None else [f"{table}{name}"])]
            elif kind == "table":
                found.append(f"{table}{name}")
            else:
                found.append(output)
        return found
