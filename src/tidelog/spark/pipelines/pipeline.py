"""The specification of a pipeline: the interface between pipelines and everything that runs them.

A package offers a :class:`Pipeline` by an entry point of the group ``tidelog.pipelines``; ``registry`` finds
it; the command line, tests and benchmarks run it through this interface alone. A module that defines
specifications imports its implementation only when a pipeline is started, so that listing them is cheap.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidelog.spark.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KEPT_FOREVER: Mapping[str, str] = {"retention.ms": "-1", "retention.bytes": "-1"}
"""The configs of a topic that is ``kept``."""


@dataclass(frozen=True, slots=True)
class PipelineTopic:
    """A topic that a pipeline needs, and how it is created where it is missing."""

    name: str
    compacted: bool = False
    kept: bool = False
    """It keeps its records forever; a topic that exists without a retention of its own is changed."""

    @property
    def configs(self) -> dict[str, str | None]:
        """The configs of a new topic."""
        if self.compacted:
            return {"cleanup.policy": "compact"}
        return dict(KEPT_FOREVER) if self.kept else {}


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


def lazily(place: str) -> Callable[..., Any]:
    """The function at ``module:name``, whose module is imported when the function is called."""

    def call(*arguments: Any) -> Any:
        module, _, name = place.partition(":")
        return getattr(importlib.import_module(module), name)(*arguments)

    return call


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
    """Starts the streaming query (its name is the pipeline's) and returns at once; see :func:`lazily`."""
    backfill: Callable[[SparkSession, PipelineSettings, TimeRange], BackfillReport]
    """Works off a range of event time as one batch; running it twice leaves what running it once leaves."""
    check: Callable[[PipelineSettings], None] = accept_all
    """Refuses, with a sentence and before Spark is started, settings with which it would not be exact."""
    topics: tuple[PipelineTopic, ...] = ()
    """The topics of its application, created before Spark starts."""
    expiring_tables: tuple[str, ...] = ()
    """Tables in Cassandra whose rows may expire, since nothing is computed from them."""
    incident_topic: str | None = None
    """The topic of the incidents that its application finds; the console links it."""
    preload: tuple[str, ...] = ()
    """Modules that its tasks use: Spark's Python workers are forked from a process that has loaded them."""
    run_options: str | None = None
    """``module:class``: a dataclass of typer options that ``run`` takes beside the common ones. Its method
    ``extension()`` returns settings for :attr:`PipelineSettings.extensions`."""
    backfill_options: str | None = None
    """The same for ``backfill``; None takes :attr:`run_options`."""

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
